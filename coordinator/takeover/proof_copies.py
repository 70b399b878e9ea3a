"""Copy the workers' state to the coordinator's host, so that another version of dbsp can run finished steps over it.

Workers whose disks are on other hosts cannot be read by the other version. So the running version copies here what
`proving` reads: the versions that all workers hold. The copies are in `<data_dir>/proof`, until the proof is over.

1. Steps go on, and the workers' files are only read.
2. A copy that is not whole has no version that can be opened, so no proof uses it.
3. No failure of the copying ends the upgrade or the service: the answer says why nothing was proved.

Limits: a version of at most `[upgrade] max_proof_bytes`, half of the free space of the disk, and no piece after `SECONDS_MAX`.
A larger state is not proved, not even a part of it. Source: docs/design/0054.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dbsp.coordinator.decisions import states
from dbsp.coordinator.decisions.recovery import Choice, complete, hosts_of
from dbsp.coordinator.layouts import shares_disk
from dbsp.coordinator.settings.config import Config
from dbsp.coordinator.takeover.proving import NO_STEPS, OTHER_HOSTS, copies_home
from dbsp.coordinator.worker_resources import home_in
from dbsp.errors import DbspError, InternalError, UnavailableError
from dbsp.runtime.runtime import Runtime
from dbsp.runtime.standbys import StandbyRoute, follow
from dbsp.runtime.tasks import PIECE_BYTES
from dbsp.runtime.version_copies import CopiesHere, HasFarReads, RunsBesideSteps, version_sizes
from dbsp.storage.far_standby import FarStandby
from dbsp.store import VersionInfo

SECONDS_MAX = 30.0
TRIES = 3
"""The number of attempts, if the workers drop the versions that are being copied."""

Sizes = Mapping[int, Mapping[VersionInfo, int]]
"""The versions that each worker holds, with their bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofCopies:
    """The result of the copying: the copied bytes, and why no version is complete here (empty if at least one is)."""

    sent_bytes: int = 0
    left_out: str = ""


NOT_NEEDED = ProofCopies()


@contextmanager
def copied_for_proof(config: Config, runtime: Runtime, facts: states.Facts) -> Iterator[ProofCopies]:
    """Copy the versions that a proof may begin with, where their workers are on other hosts; delete them after the block.

    A crash leaves the copies; the next start of the service deletes them (`discard_copies`), and so does the next call.
    """
    if shares_disk(config):
        yield NOT_NEEDED
        return
    discard_copies(config.data_dir)
    try:
        yield _copied(config, runtime, facts)
    finally:
        discard_copies(config.data_dir)


def discard_copies(data_dir: Path) -> None:
    """Delete copies of an upgrade, whole or not."""
    shutil.rmtree(copies_home(data_dir), ignore_errors=True)


def _copied(config: Config, runtime: Runtime, facts: states.Facts) -> ProofCopies:
    """Copy, and describe a failure instead of raising it."""
    if not isinstance(runtime, HasFarReads):
        return ProofCopies(left_out=OTHER_HOSTS)
    try:
        return _Copying(config, runtime.far_reads, facts).result()
    except InternalError:
        raise
    except DbspError as error:
        return ProofCopies(left_out=f"the workers' state was not copied: {error.message}")
    except OSError as error:
        return ProofCopies(left_out=f"the workers' state was not copied: {error}")


class _Copying:
    """The copying for one proof."""

    def __init__(self, config: Config, far: RunsBesideSteps, facts: states.Facts) -> None:
        """Store the folders; no worker is asked yet."""
        self._config, self._far, self._facts = config, far, facts
        workers = facts.layout.workers
        self._homes = dict(zip(workers, hosts_of(facts, workers) or ("",) * len(workers), strict=True))
        self._until_s = time.monotonic() + SECONDS_MAX
        self._carrier = CopiesHere(far, self._store, PIECE_BYTES)

    def _store(self, worker: int) -> FarStandby:
        return FarStandby(home_in(copies_home(self._config.data_dir), worker))

    def result(self) -> ProofCopies:
        """Copy the complete versions, oldest first; begin again if the workers dropped all of them meanwhile.

        **Errors** `UnavailableError` if a host does not answer.
        """
        gone = ""
        for _ in range(TRIES):
            whole, left_out = 0, NO_STEPS
            for choice, size in self._choices():
                left_out = self._refused(size)
                if left_out:
                    continue
                try:
                    self._follow(choice)
                    whole += 1
                except UnavailableError as error:
                    left_out = gone = f"the workers' state was not copied: {error.message}"
            if whole:
                return ProofCopies(sent_bytes=self._carrier.sent_bytes)
            if left_out != gone or self._is_late():
                break
        return ProofCopies(sent_bytes=self._carrier.sent_bytes, left_out=left_out)

    def _choices(self) -> list[tuple[Choice, int]]:
        """Return the complete versions of the present workers, oldest first, with their bytes."""
        workers, hosts = tuple(self._homes), tuple(self._homes.values())
        sizes: Sizes = self._far.run("ask for versions", workers, hosts, version_sizes)
        facts = self._facts
        held = {worker: tuple(infos) for worker, infos in sizes.items()}
        found = complete(held, facts.layouts, run=facts.run, fingerprint=facts.fingerprint)
        return [(choice, _bytes_of(choice, sizes)) for choice in found]

    def _refused(self, size: int) -> str:
        """Return why a version of this size is not copied; empty if it is."""
        most, free = self._config.upgrade.max_proof_bytes, shutil.disk_usage(self._config.data_dir).free
        if size > most:
            return (
                f"the state on other hosts is larger than upgrade.max_proof_bytes: bytes={size} max_proof_bytes={most}"
            )
        if 2 * size > free:
            return f"the disk has too little room for a copy of the state: bytes={size} free_bytes={free}"
        return ""

    def _follow(self, choice: Choice) -> None:
        """Copy a version."""
        routes = [StandbyRoute(worker=worker, home=self._homes[worker], host="") for worker in choice.layout.workers]
        try:
            follow(self._carrier, choice.version, self._facts.epoch, routes, lambda _: None, self._is_late)
        except UnavailableError as error:
            if self._is_late():
                raise UnavailableError(f"it takes longer than {SECONDS_MAX:g} s") from error
            raise

    def _is_late(self) -> bool:
        return time.monotonic() > self._until_s


def _bytes_of(choice: Choice, sizes: Sizes) -> int:
    """Return the bytes of a version on all its workers."""
    info = VersionInfo(version=choice.version, checkpoint=choice.checkpoint)
    return sum(sizes[worker][info] for worker in choice.layout.workers)
