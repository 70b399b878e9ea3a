"""The level of formats of a pipeline that 0.1.0 has made: kept for the rollback window, then raised (docs/design/0062)."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dbsp.coordinator.build import build
from dbsp.coordinator.checks.doctor import diagnose, read_ledger
from dbsp.coordinator.checks.preflight import formats, formats_read, ledger_format
from dbsp.coordinator.decisions.fills import Fill
from dbsp.coordinator.running.control import Ledger, new_ledger
from dbsp.coordinator.running.format_window import beyond, risen
from dbsp.coordinator.running.ledger_file import FORM, OLDER, LmdbControl, decode_ledger, encode_ledger
from dbsp.coordinator.running.status_json import at
from dbsp.coordinator.service import Service
from dbsp.io import embedded_input, embedded_output
from dbsp.io.examine import reading
from dbsp.layout import initial, with_readers
from dbsp.stored.levels import BEFORE, NEWEST
from tests.coordinator import keep, shop
from tests.coordinator.test_kept_data import unpacked

OF_0_1_0 = keep.KEPT / "0.1.0-embedded.zip"
SPAN, PROGRESS, CHECKSUM = 32, 24, 8
"""Bytes of the small records of 0.1.0; a checksum is four more."""
SEALED = 4
A_WEEK_S = 604_800


def sizes(data: Path) -> Mapping[str, set[int]]:
    """The lengths of small records, by kind."""
    found = dict[str, set[int]]()
    with reading(data / "input", embedded_input.FORM, ("spans",)) as log:
        found["spans"] = {len(value) for _, value in log.items("spans")}
    for worker in sorted((data / "outputs").iterdir()):
        with reading(worker, embedded_output.FORM, ("checksums",)) as log:
            found.setdefault("progress", set()).add(len(log.get("meta", b"progress") or b""))
            found.setdefault("checksums", set()).update(len(value) for _, value in log.items("checksums"))
    return found


def form(data: Path) -> str:
    with reading(data / "control", None, ()) as log:
        return (log.get("meta", b"format") or b"").decode()


def gone_on(folder: Path, *overrides: str, workers: int = 3) -> str | None:
    """Go on with a service: push, rescale, take a checkpoint; return until when it says that 0.1.0 can go on."""
    config = shop.settings(folder, *overrides)
    with Service(config, build(config, accepting=["0.1.0"])) as service:
        keep.push(service, 6)
        service.rescale(workers)
        keep.push(service, 7)
        service.checkpoint()
        return service.status()["rollback_until"]


def test_data_of_0_1_0_stay_as_it_reads_them_within_the_window_and_are_sealed_after_it(tmp_path: Path) -> None:
    data = unpacked(OF_0_1_0, tmp_path) / "data"
    until = gone_on(tmp_path)
    assert sizes(data) == {"spans": {SPAN}, "progress": {PROGRESS}, "checksums": {CHECKSUM}}
    ledger = read_ledger(data)
    assert ledger.own_since_us is not None
    assert until == at(ledger.own_since_us / 1e6 + A_WEEK_S)
    assert (form(data), ledger.level) == (OLDER, BEFORE)
    assert not any(layout.readers for layout in ledger.layouts.values())

    assert gone_on(tmp_path, "upgrade.rollback_window_s=0", workers=2) is None
    assert sizes(data)["progress"] == {PROGRESS}, "the process that raises the level writes on as before"
    assert (form(data), read_ledger(data).level) == (FORM, NEWEST)

    gone_on(tmp_path)
    found = sizes(data)
    assert found["spans"] == {SPAN + SEALED}
    assert found["progress"] == {PROGRESS + SEALED}
    assert CHECKSUM + SEALED in found["checksums"]
    assert any(layout.readers for layout in read_ledger(data).layouts.values())
    assert not diagnose(shop.settings(tmp_path)).findings


def a_ledger(**more: Any) -> Ledger:
    made = new_ledger(fingerprint="f", nodes=[], layout=initial(1))
    return replace(made, level=BEFORE, **more)


def test_the_window_begins_with_the_first_own_checkpoint_and_ends_with_one() -> None:
    made = a_ledger()
    first = risen(made, 1_000, 500)
    assert (first.level, first.own_since_us) == (BEFORE, 1_000)
    assert risen(first, 1_499, 500) == first
    after = risen(first, 1_500, 500)
    assert after.level == NEWEST
    assert risen(after, 9_000, 500) == after, "a level never falls"
    found = {name: value for name, value in encode_ledger(first).items() if name not in ("level", "own_since_us")}
    assert decode_ledger(found) == made, "an older version drops what it does not know: the window begins anew"


BEYOND: dict[str, dict[str, Any]] = {
    "views began anew: v": {"began": {"v": 3}},
    "a step that fills a changed circuit may have to run again": {"fill": Fill(step=1, command="fill {}")},
    "copies of checkpoints lag behind": {"copied": 0},
    "workers have returned to the copies": {"given_up": 2},
    "another host has been the coordinator": {"own_disk_since": 2},
    "workers read input partitions by a table": {"layouts": {0: with_readers(initial(1), {"t": 2})}},
}


@pytest.mark.parametrize("words", BEYOND)
def test_what_0_1_0_would_misread_closes_the_ledger_to_it_as_long_as_it_is_so(tmp_path: Path, words: str) -> None:
    plain = a_ledger()
    with closing(LmdbControl(tmp_path)) as control:
        control.begin(plain)
        assert form(tmp_path) == OLDER
        changed = control.change(None, lambda ledger: replace(ledger, **BEYOND[words]))
        assert beyond(changed) == (words,)
        assert form(tmp_path) == FORM
        assert ledger_format(changed) == formats()["ledger"]
        control.change(None, lambda _: plain)
        assert form(tmp_path) == OLDER
        assert ledger_format(plain) in formats_read()["ledger"]


def test_a_new_pipeline_begins_with_the_newest_formats(tmp_path: Path) -> None:
    (tmp_path / "circuit.py").write_text(shop.CIRCUIT)
    (tmp_path / "pipeline.toml").write_text(shop.SETTINGS)
    with Service(shop.settings(tmp_path)):
        pass
    assert form(tmp_path / "data") == FORM
    assert read_ledger(tmp_path / "data").level == NEWEST
