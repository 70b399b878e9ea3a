"""Rules about copies off the host taken out, one at a time, for `plants`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from dbsp.coordinator.running import copies_behind, lagging, published_copies
from dbsp.coordinator.running.control import Ledger
from dbsp.storage.copied_checkpoints import CopiedCheckpoints
from dbsp.storage.copies import WorkerCopies
from dbsp.storage.copy_manifests import ManifestName

Patch = pytest.MonkeyPatch


def publish_before_the_copy(patch: Patch) -> None:
    """A version counts as copied when its copy begins."""
    patch.setattr(WorkerCopies, "follow", lambda *_: True)


def collect_what_a_manifest_names(patch: Patch) -> None:
    """The collector deletes all chunks of older epochs."""

    def sweep(self: WorkerCopies, past: Sequence[ManifestName], epoch: int) -> None:
        self._drop(past, always=True)
        self._delete(name for name in self._names("chunks") if int(name.split("/")[1]) < epoch)

    patch.setattr(WorkerCopies, "_sweep", sweep)


def keep_logs_from_a_copy_under_way(patch: Patch) -> None:
    """Logs are kept from the published version on, though its copy may not be whole."""
    publish = lagging.ledgers.publish

    def published(ledger: Ledger, version: int, **more: Any) -> Ledger:
        found = publish(ledger, version, **more)
        return found if found.copied is None else lagging.note_copied(found, copies_behind._newest(found))

    patch.setattr(lagging.ledgers, "publish", published)


def trust_what_was_put(patch: Patch) -> None:
    """What the place has acknowledged counts as there."""
    patch.setattr(WorkerCopies, "_compare", lambda *_: None)
    patch.setattr(WorkerCopies, "_is_readable", lambda *_: True)
    patch.setattr(published_copies, "read_back", lambda *_: None)


def keep_no_root(patch: Patch) -> None:
    """A worker deletes manifests that a checkpoint of the pipeline names."""
    patch.setattr(CopiedCheckpoints, "states", lambda _self: frozenset[tuple[int, int]]())


RULES = (
    ("a version is published when its copy is whole", publish_before_the_copy, "8", 12),
    ("a chunk that a manifest names is not collected", collect_what_a_manifest_names, "8", 12),
    ("logs are kept from the newest whole copy on", keep_logs_from_a_copy_under_way, "8", 24),
    ("a copy counts when it was read back", trust_what_was_put, "8", 24),
    ("a manifest stays while a checkpoint names it", keep_no_root, "8", 24),
)
"""The rule, how it is broken, the number of its concept page (`test_traps`), within how many seeds."""
