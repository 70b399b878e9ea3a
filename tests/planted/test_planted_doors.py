"""Planted bugs at the doors: each guard is switched off, and a test that exists must turn red; without the plant it is green."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from dbsp.coordinator.backup import manifests
from dbsp.coordinator.backup.manifests import BackupFile, Manifest
from dbsp.coordinator.http import access, doors, tokens
from dbsp.coordinator.query import statement
from dbsp.errors import DataError
from dbsp.io.formats import arrow_rows
from dbsp.io.pushed import PushBounds
from tests.coordinator import test_access, test_doors_alone, test_query
from tests.io import test_push_bounds

Patch = pytest.MonkeyPatch


@dataclass(frozen=True, slots=True, kw_only=True)
class Plant:
    """A guard that is switched off, and what must notice it."""

    guard: str
    breaks: Callable[[Patch], None]
    detector: Callable[[Path], None]


def generated(test: Any, *strategies: Any) -> Callable[[Path], None]:
    """A Hypothesis test on the examples of one seed."""

    def detect(_folder: Path) -> None:
        few = settings(max_examples=30, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
        seed(7)(few(given(*strategies)(test.hypothesis.inner_test)))()

    return detect


def leads_out(folder: Path) -> None:
    """A manifest with a name outside of its folder is refused."""
    manifest = Manifest(
        pipeline="p", run="r", at="now", engine="0", step=1, version=1, checkpoint_step=1, workers=1, input="embedded",
        output="embedded", fingerprint="f", nodes=(), files=(BackupFile(path="../x", bytes=1, sha256="0"),),
    )  # fmt: skip
    manifests.write_manifest(folder, manifest)
    with pytest.raises(DataError):
        manifests.read_manifest(folder)


def known_everywhere(tree: Any) -> Any:
    """The walk that was: a name of any WITH is known everywhere."""
    nodes = list(walk(tree))
    every = frozenset(name for node in nodes for name in node.names)
    return [statement._Node(node.tree, every) for node in nodes]


walk = statement._walk


def one_secret(_folder: Path) -> None:
    test_access.test_an_error_of_settings_tells_no_secret({"http": {"token": 12345678}}, (), {})


def uncounted(self: doors.Passage, size: int) -> None:
    """A body whose bytes nobody counts."""


PLANTS = [
    Plant(
        guard="the raw host is compared as a whole",
        breaks=lambda patch: patch.setattr(
            access, "HOST", re.compile(rb".*localhost.*|127.*|[^.]*\{.*|\[::1\].*", re.IGNORECASE)
        ),
        detector=lambda _: test_access.test_hosts_of_this_machine_are_let_in_and_all_others_are_not(),
    ),
    Plant(
        guard="a browser's word on where a page is from counts",
        breaks=lambda patch: patch.setattr(access, "FOREIGN", ()),
        detector=lambda _: test_access.test_our_own_page_and_links_to_it_are_let_in(),
    ),
    Plant(
        guard="what is not listed needs the widest scope",
        breaks=lambda patch: patch.setattr(tokens, "PUSH", re.compile("/v1/.*")),
        detector=lambda _: test_access.test_what_is_not_listed_needs_the_widest_scope(),
    ),
    Plant(
        guard="the bytes of a body are counted",
        breaks=lambda patch: patch.setattr(doors.Passage, "_take", uncounted),
        detector=generated(
            test_doors_alone.test_a_body_within_the_bound_is_read_and_no_other_is, *test_doors_alone.REQUESTS
        ),
    ),
    Plant(
        guard="what a body took is given back",
        breaks=lambda patch: patch.setattr(doors.Passage, "release_body", lambda _self: None),
        detector=generated(test_doors_alone.test_all_bodies_together_have_a_bound, test_doors_alone.TOGETHER),
    ),
    Plant(
        guard="the sizes in a stream's headers are read before it is unpacked",
        breaks=lambda patch: patch.setattr(arrow_rows, "stream_sizes", lambda _data: iter(())),
        detector=lambda _: test_push_bounds.test_rows_that_take_no_bytes_are_counted_in_those_of_the_table(),
    ),
    Plant(
        guard="texts count in full",
        breaks=lambda patch: patch.setattr(arrow_rows, "decoded_bytes", lambda column: column.nbytes),
        detector=lambda _: test_push_bounds.test_texts_that_a_dictionary_makes_short_count_in_full(),
    ),
    Plant(
        guard="a push of bad rows is refused",
        breaks=lambda patch: patch.setattr(PushBounds, "refuse_bad", lambda *_: None),
        detector=lambda _: test_push_bounds.test_most_rows_bad_is_refused_and_some_are_not(),
    ),
    Plant(
        guard="names of a manifest stay in its folder",
        breaks=lambda patch: patch.setattr(manifests, "_refuse_names", lambda *_: None),
        detector=leads_out,
    ),
    Plant(
        guard="a name of WITH is known in its scope",
        breaks=lambda patch: patch.setattr(statement, "_walk", known_everywhere),
        detector=lambda _: test_query.test_a_name_of_the_statement_is_known_in_its_scope_alone(
            "select (with pg_settings as (select 1) select 1), t.* from pg_settings t"
        ),
    ),
    Plant(
        guard="secrets are not shown",
        breaks=lambda patch: patch.setattr("dbsp.coordinator.settings.config.SECRET_KEY", re.compile("nothing")),
        detector=one_secret,
    ),
]


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.guard)
def test_a_guard_that_is_switched_off_is_noticed(plant: Plant, tmp_path: Path, monkeypatch: Patch) -> None:
    plant.detector(tmp_path)
    plant.breaks(monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        plant.detector(tmp_path)
