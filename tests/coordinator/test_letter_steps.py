"""Dead letters of files, replayed in steps of their own: once, whatever is killed, and as if the rows had been right."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

from dbsp.coordinator.build import build
from dbsp.coordinator.checks.doctor import diagnose
from dbsp.coordinator.client.client import Client
from dbsp.coordinator.running.replays import WaitingReplay, WaitingReplays
from dbsp.coordinator.service import Service
from dbsp.coordinator.serving import letter_steps
from dbsp.coordinator.serving.letter_rows import decode_text
from dbsp.coordinator.serving.letters import LetterFilter
from dbsp.errors import ConfigError, DbspError, UnavailableError
from dbsp.io import texts
from dbsp.io.letter_log import LetterLog
from dbsp.io.texts import _of_text
from dbsp.runtime import tasks
from dbsp.stored.levels import BEFORE
from tests.coordinator.shop import answering, script, settings, settings_text
from tests.coordinator.test_letters import GOOD, KEEP, NOTED, WRONG, counts, killed_at, letters, push, replay
from tests.forked import Forked
from tests.pace import rotating
from tests.spark.waiting import until

pytestmark = pytest.mark.timeout(300)

CIRCUIT = """
import dbsp
from dbsp import col, count
from dbsp import sum as total

orders = dbsp.table("orders", {"id": dbsp.INT64, "customer": dbsp.STRING, "amount": dbsp.INT64}, primary_key=["id"])
visits = dbsp.table("visits", {"customer": dbsp.STRING, "pages": dbsp.INT64})
per_customer = orders.group_by("customer").aggregate(orders=count(), amount=total("amount"))
seen = visits.group_by("customer").aggregate(visits=count(), pages=total("pages"))
pipeline = dbsp.circuit("shop", {"per_customer": per_customer, "seen": seen})
"""
NOTES = CIRCUIT.replace('"amount": dbsp.INT64}', '"amount": dbsp.INT64, "note": dbsp.STRING}').replace(
    '"pages": dbsp.INT64}', '"pages": dbsp.INT64, "note": dbsp.STRING}'
)
"""The circuit after the fix: rows may have a note."""
FILES = '[input]\nkind = "files"\ndirectory = "landing"\nlook_every_s = 0.05\npartitions = 2\n'
ORDERS = [GOOD, NOTED, WRONG, {**GOOD, "id": 3}]
LATER = [{**NOTED, "id": 4, "customer": "b"}, {**GOOD, "id": 2, "amount": 1}]
VISITS = [{"customer": "a", "pages": 1}, *({"customer": "b", "pages": n, "note": "x"} for n in range(7))]
VIEWS = ("per_customer", "seen")


def write(folder: Path, circuit: str, more: str = FILES) -> None:
    name = "after.py" if circuit == NOTES else "circuit.py"  # a process loads a file once
    (folder / name).write_text(circuit)
    (folder / "pipeline.toml").write_text(settings_text(KEEP + more).replace("circuit.py", name))


@contextmanager
def running(folder: Path, *overrides: str, evolve: bool = False) -> Iterator[tuple[Service, httpx.Client]]:
    """A service and its client; it ends without a last checkpoint, so that the next one replays."""
    config = settings(folder, *overrides)
    service = Service(config, build(config, evolve=evolve))
    try:
        service.start(timeout_s=60)
        with answering(service) as client:
            yield service, client
    finally:
        service.stop(now=True, quiet=True)


def landed(
    folder: Path, client: httpx.Client, name: str, rows: Sequence[dict[str, Any]], table: str = "orders"
) -> None:
    """Put a file into a table's folder, and wait until its rows are processed."""
    before = client.get("/v1/status").json()["step"]
    part = folder / "landing" / table / f".{name}"
    part.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    part.rename(part.with_name(name))
    until(lambda: client.get("/v1/status").json()["step"] > before, "the file is read")


def views(client: httpx.Client) -> dict[str, list[dict[str, Any]]]:
    return {view: sorted(client.get(f"/v1/views/{view}").json()["rows"], key=str) for view in VIEWS}


def with_letters(folder: Path) -> None:
    """Make a pipeline whose letters can be replayed now, because its tables got the column that their rows have."""
    write(folder, CIRCUIT)
    with running(folder) as (service, client):
        landed(folder, client, "one.jsonl", ORDERS)
        landed(folder, client, "two.jsonl", LATER)
        landed(folder, client, "one.jsonl", VISITS, "visits")
        assert len(letters(client)) == 3 + 7
        assert counts(replay(client, dry_run=True)) == (0, 10, 0, 0)
        service.stop()
    write(folder, NOTES)
    with running(folder, evolve=True) as (service, _):
        service.stop()


@pytest.fixture(scope="module")
def fixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fixed")
    with_letters(folder)
    return folder


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """The views if the rows had been right, at the step of the replay: after all others."""
    folder = tmp_path_factory.mktemp("right")
    write(folder, NOTES, "")
    with running(folder) as (_, client):
        push(client, [GOOD, {**GOOD, "id": 3}, {**GOOD, "id": 2, "amount": 1}])
        push(client, [NOTED, {**NOTED, "id": 4, "customer": "b"}])
        push(client, VISITS, "visits")
        return views(client)


@pytest.fixture
def folder(fixed: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(fixed, tmp_path / "shop"))


def test_rows_of_files_are_replayed_once_after_a_fix(folder: Path, expected: dict[str, list[dict[str, Any]]]) -> None:
    with running(folder) as (service, client):
        before = views(client)
        assert counts(replay(client, dry_run=True)) == (9, 1, 0, 0)
        assert views(client) == before
        service.rescale(3)
        found = replay(client, table="orders")
        assert (counts(found), found["processed"], found["positions"]) == ((2, 1, 0, 0), True, [])
        assert found["again"] == [{"position": "0-1", "reason": "column id: expected int64, found a string"}]
        (step,) = found["steps"]
        assert counts(replay(client)) == (7, 1, 2, 0)
        assert views(client) == expected
        listed = {each["position"]: each["replayed"] for each in letters(client, table="orders")}
        assert listed == {"0-0": {"step": step}, "0-1": None, "1-0": {"step": step}}
        assert len(letters(client, replayed=False)) == 1
    with running(folder) as (service, client):  # the steps of the replays run again
        assert counts(replay(client)) == (0, 1, 9, 0)
        assert views(client) == expected
        service.checkpoint()
    with running(folder) as (_, client):
        assert counts(replay(client)) == (0, 1, 9, 0)
        assert (views(client), len(letters(client))) == (expected, 10)
    assert not diagnose(settings(folder)).findings


@pytest.mark.parametrize("plant", ["no rows", "no note", "other place"])
def test_plants_of_replays_in_steps_are_found(
    folder: Path, expected: dict[str, list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch, plant: str
) -> None:
    """Planted: a step forgets the rows of its record; the notes are forgotten; every worker takes the rows."""
    match plant:
        case "no rows":
            monkeypatch.setattr(tasks, "replayed_changes", lambda *_arguments: [])
        case "no note":
            monkeypatch.setattr(LetterLog, "replayed", lambda _self, found: [None] * len(found))
        case _:
            monkeypatch.setattr(tasks, "_replayed", lambda work, order, _worker: _all_rows(work, order))
    with pytest.raises(AssertionError):
        test_rows_of_files_are_replayed_once_after_a_fix(folder, expected)


def _all_rows(work: Any, order: Any) -> list[Any]:
    return tasks.replayed_changes(order.record.commands, {table.name: table for table in work.plan.tables})


POINTS = [
    f"{call}:{side}:1"
    for call in ("letters.replayed", "steps.append", "runtime.run_step", "letters.keep", "runtime.pin", "inputs.trim")
    for side in ("before", "after")
]


def replayed_and_kept(client: Client) -> None:
    for wanted in ({"table": "orders"}, {}):
        client.replay_dead_letters(wait_s=60, **wanted)
        client.checkpoint()


@pytest.mark.parametrize("point", rotating(POINTS, 4))
def test_killed_around_a_replay_each_letter_is_replayed_once(
    folder: Path, expected: dict[str, list[dict[str, Any]]], point: str
) -> None:
    with killed_at(folder, point) as (client, process):
        with pytest.raises(DbspError):
            replayed_and_kept(client)
        until(lambda: process.poll() is not None, "it is dead")
    with running(folder) as (_, client):
        again = counts(replay(client))
        assert (again[0] + again[2], again[1], again[3]) == (9, 1, 0)
        assert counts(replay(client)) == (0, 1, 9, 0)
        assert views(client) == expected
    assert not diagnose(settings(folder)).findings


# --- one row, which an older version could not read -----------------------------------------------------------------

ONE = """
import os
from pathlib import Path
import dbsp
from dbsp import col

orders = dbsp.table("orders", {"id": dbsp.INT64, "customer": dbsp.STRING, "amount": dbsp.INT64}, primary_key=["id"])

def marked(customer):
    if customer == "late" and Path(__file__).with_name("armed").exists():
        os.abort()
    return customer

types = {"id": dbsp.INT64, "customer": dbsp.STRING, "share": dbsp.INT64}
shares = orders.select("id", "customer", share=1000 // col("amount"))
shown = shares.map(lambda row: {**row, "customer": marked(row["customer"])}, types)
pipeline = dbsp.circuit("shop", {"shares": shown}, error_policy="POLICY")
"""
ROWS = "id,customer,amount\n1,a,10\n2,late,AMOUNT\n3,b,1\n"


def with_one_letter(
    folder: Path, monkeypatch: pytest.MonkeyPatch, policy: str = "dead-letter", amount: int = 5
) -> None:
    """Make a pipeline with the letter of one row, "0-0", at offset 1, which this version can read."""

    def strict(values: pa.Array, wanted: pa.DataType) -> pa.Array:
        if b"late" in values.to_pylist():
            raise pa.ArrowInvalid("no such customer")
        return _of_text(values, wanted)

    (folder / "circuit.py").write_text(ONE.replace("POLICY", policy))
    (folder / "pipeline.toml").write_text(settings_text(KEEP + FILES))
    with running(folder) as (service, client), monkeypatch.context() as older:
        older.setattr(texts, "_of_text", strict)
        part = folder / "landing" / "orders" / ".one.csv"
        part.write_text(ROWS.replace("AMOUNT", str(amount)))
        part.rename(part.with_name("one.csv"))
        until(lambda: client.get("/v1/status").json()["step"] > 0, "the file is read")
        assert [(each["position"], each["row_offset"]) for each in letters(client)] == [("0-0", 1)]
        service.stop()


def shares(client: httpx.Client) -> set[int]:
    return {row["id"] for row in client.get("/v1/views/shares").json()["rows"]}


def test_a_replay_waits_for_no_pause_and_is_refused_on_the_way_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_one_letter(tmp_path, monkeypatch)
    built = build(settings(tmp_path))
    older = Service(built.config, replace(built, parts=replace(built.parts, level=BEFORE)))
    try:
        older.start(timeout_s=60)
        with pytest.raises(ConfigError, match=r"cannot be replayed while version 0\.1\.0 may continue the pipeline"):
            older.replay_letters(LetterFilter())
    finally:
        older.stop(now=True, quiet=True)
    with running(tmp_path) as (service, client):
        service.pause()
        with pytest.raises(UnavailableError, match="the pipeline is paused"):
            service.replay_letters(LetterFilter())
        service.resume()
        assert not service._loop.runner.replays, "the refused replay does not wait for a step"
        assert counts(replay(client)) == (1, 0, 0, 0)
        assert shares(client) == {1, 2, 3}
        said = script("cli", "--url", str(client.base_url), "dead-letters", "list", "--all").stdout
        assert "(replayed in step 1)" in said
        asked = client.post("/v1/query", json={"sql": "SELECT count(*) FROM dead_letters WHERE replayed"}).json()
        assert asked["rows"] == [[1]]


@pytest.mark.parametrize("planted", [False, True])
def test_the_same_letter_is_replayed_once_by_two_at_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch, planted: bool
) -> None:
    """Both look for letters before either has a step; planted: the step does not look again."""
    if planted:
        monkeypatch.setattr(WaitingReplays, "take", lambda self, _replayed: _taken(self))
    with running(folder) as (service, client):
        letter = service.dead_letters(LetterFilter(table="visits")).letters[0][0]
        rows = decode_text(letter, service.table("visits"), service.config.input)
        command = letter_steps._command([(letter, rows)])
        both = [WaitingReplay(letters=((letter.step, letter.number),), command=command) for _ in range(2)]
        service.pause()
        for each in both:
            service._loop.runner.replays.add(each)
        service.resume()
        first, second = (each.logged.result(60) for each in both)
        assert first is not None
        assert second == (first + 1 if planted else None)
        until(lambda: client.get("/v1/status").json()["step"] > (second or first), "they have run")
        assert sum(row["visits"] for row in views(client)["seen"]) == (3 if planted else 2)


def _taken(waiting: WaitingReplays) -> WaitingReplay | None:
    return waiting._waiting.popleft() if waiting._waiting else None


def test_a_replayed_row_that_fails_at_a_node_halts_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_one_letter(tmp_path, monkeypatch, policy="stop", amount=0)
    with running(tmp_path) as (service, client):
        answer = client.post("/v1/dead-letters/replay", json={}, params={"wait": "true"})
        assert answer.status_code == 202, answer.text
        until(lambda: client.get("/v1/status").json()["halt"], "it halts")
        (row,) = client.get("/v1/status").json()["halt"]["rows"]
        assert (row["table"], row["offset"], row["reason"]) == ("orders", 1, "divide by zero")
        with pytest.raises(UnavailableError, match="rows of the next step fail"):
            service.replay_letters(LetterFilter())
        service.skip(timeout_s=60)
        assert shares(client) == {1, 3}
        assert [(each["code"], each["replayed"]) for each in letters(client)] == [
            ("unreadable", {"step": 1}), ("failed", None)
        ]  # fmt: skip


def replayed_by_another(folder: str) -> None:
    with running(Path(folder)) as (_, client):
        replay(client)


def started_by_another(folder: str) -> None:
    with running(Path(folder)):
        pass


def test_a_replayed_row_that_kills_is_found_and_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_one_letter(tmp_path, monkeypatch)
    (tmp_path / "armed").touch()
    for function in (replayed_by_another, started_by_another, started_by_another):
        assert Forked(tmp_path / "said.txt", function, str(tmp_path)).wait(120) == -signal.SIGABRT
    with running(tmp_path) as (service, client):
        assert service.status()["halt"]["death"] == "SIGABRT"
        (row,) = service.skip(timeout_s=300).dropped
        assert (row.table, row.offset, json.loads(row.payload)["customer"]) == ("orders", 1, "late")
        assert shares(client) == {1, 3}
        assert [(each["code"], each["replayed"]) for each in letters(client)] == [
            ("unreadable", {"step": 1}), ("skipped", None)
        ]  # fmt: skip
        assert counts(replay(client)) == (0, 0, 1, 1)
