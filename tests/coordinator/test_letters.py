"""Dead letters of a whole service: kept once whatever is killed, listed, queried, followed, and replayed at most once."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

import dbsp
from dbsp.coordinator.backup.restoring import restore
from dbsp.coordinator.checks.doctor import diagnose
from dbsp.coordinator.client.client import Client
from dbsp.coordinator.running.letters import CHANGED, Letter, Letters, NoLetters
from dbsp.coordinator.service import Service
from dbsp.coordinator.serving.letter_codes import COLUMNS
from dbsp.coordinator.serving.letters import unreadable
from dbsp.errors import ConfigError, DbspError
from dbsp.io import chunk, texts
from dbsp.io.examine import examine_input
from dbsp.io.letter_log import LetterLog
from dbsp.io.pushed import PAYLOAD_CHARS_MAX
from dbsp.io.replayed import Replayed
from dbsp.io.texts import _of_text
from tests.coordinator.shop import answering, script, settings, settings_text
from tests.coordinator.test_evolving import changed, write
from tests.crash.coordinator_child import serve
from tests.forked import Forked
from tests.spark.waiting import until

pytestmark = pytest.mark.timeout(300)

CIRCUIT = """
import dbsp
from dbsp import col, count
from dbsp import sum as total

orders = dbsp.table("orders", {"id": dbsp.INT64, "customer": dbsp.STRING, "amount": dbsp.INT64}, primary_key=["id"])
names = dbsp.table("names", {"customer": dbsp.STRING, "size": dbsp.INT64})
per_customer = orders.group_by("customer").aggregate(orders=count(), amount=total("amount"))
shares = orders.select("id", share=1000 // col("amount"))
joined = orders.join(names, on="customer").select("id", each=col("amount") // col("size"))
pipeline = dbsp.circuit("shop", {"per_customer": per_customer, "shares": shares, "joined": joined})
"""
KEEP = "[checkpoint]\ninterval_s = 3600\n"
GOOD = {"id": 1, "customer": "a", "amount": 700}
NOTED = {"id": 2, "customer": "a", "amount": 5, "note": "gift"}
"""A row that can be read once unknown names are ignored."""
WRONG = {"id": "x", "customer": "b", "amount": 5}
ZERO = {"id": 4, "customer": "b", "amount": 0}
MORE = [{"id": 10, "customer": "c", "amount": 1}, {"id": 11, "customer": "c", "amount": 1}]
ROWS = [GOOD, NOTED, MORE[0], WRONG, ZERO, {**NOTED, "id": 3}, MORE[1]]
BEFORE = {"a": (1, 700), "b": (1, 0), "c": (2, 2)}
AFTER = {"a": (3, 710), "b": (1, 0), "c": (2, 2)}
IGNORE = "input.unknown_columns=ignore"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "circuit.py").write_text(CIRCUIT)
    (tmp_path / "pipeline.toml").write_text(settings_text(KEEP))
    return tmp_path


@contextmanager
def running(folder: Path, *overrides: str) -> Iterator[tuple[Service, httpx.Client]]:
    """A service and its client; it ends without a last checkpoint, so that the next one replays."""
    service = Service(settings(folder, *overrides))
    try:
        service.start(timeout_s=60)
        with answering(service) as client:
            yield service, client
    finally:
        service.stop(now=True, quiet=True)


def push(client: httpx.Client, rows: list[dict[str, Any]], table: str = "orders") -> None:
    answer = client.post(f"/v1/tables/{table}/rows", json=rows, params={"wait": "true"})
    assert answer.json().get("processed"), answer.text


def letters(client: httpx.Client, **wanted: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.get("/v1/dead-letters", params=wanted).raise_for_status().json()["letters"]
    return found


def replay(client: httpx.Client, **body: Any) -> dict[str, Any]:
    answer = client.post("/v1/dead-letters/replay", json=body, params={"wait": "true"})
    found: dict[str, Any] = answer.raise_for_status().json()
    return found


def totals(client: httpx.Client) -> dict[str, tuple[int, int]]:
    rows = client.get("/v1/views/per_customer").json()["rows"]
    return {row["customer"]: (row["orders"], row["amount"]) for row in rows}


def counts(found: dict[str, Any]) -> tuple[int, int, int, int]:
    return found["replayed"], found["failed_again"], found["replayed_before"], sum(found["not_replayable"].values())


@pytest.mark.parametrize("kind", ["embedded", "files"])
def test_listed_queried_followed_and_named_in_the_status(folder: Path, kind: str) -> None:
    with running(folder, f"output.kind={kind}") as (_, client):
        push(client, ROWS)
        push(client, [{"customer": "a", "size": 0}], "names")
        found = letters(client)
        assert [(each["position"], each["code"], each["table_name"], each["row_offset"]) for each in found] == [
            ("0-0", "failed", "orders", None), ("0-1", "unreadable", "orders", 1), ("0-2", "unreadable", "orders", 3),
            ("0-3", "unreadable", "orders", 5), ("1-0", "failed", None, None),
        ]  # fmt: skip
        assert json.loads(found[1]["text"]) == NOTED
        assert found[1]["unplaced"] is None
        assert found[0]["unplaced"] == "operators know rows by their content, without their place in the input"
        assert found[4]["unplaced"].startswith("made of rows of names, orders; operators know rows by their content")
        assert [each["position"] for each in letters(client, code="unreadable", reason="note")] == ["0-1", "0-3"]

        pages, cursor = [], None
        while cursor != "":
            page = client.get(
                "/v1/dead-letters", params={"limit": 2, "newest": True} | ({"cursor": cursor} if cursor else {})
            )
            pages.append([each["position"] for each in page.json()["letters"]])
            cursor = page.json()["next"] or ""
        assert [at for each_page in pages for at in each_page] == [each["position"] for each in reversed(found)]
        assert letters(client, first=found[4]["position"]) == found[4:]
        assert letters(client, first="0-3", last="0") == found[3:4]
        assert letters(client, table="names") == []

        sql = "SELECT code, row_offset, replayed, count(*) FROM dead_letters, per_customer GROUP BY ALL ORDER BY ALL"
        asked = client.post("/v1/query", json={"sql": sql}).json()
        unreadable = [["unreadable", offset, False, 3] for offset in (1, 3, 5)]
        assert (asked["step"], asked["rows"]) == (2, [["failed", None, False, 6], *unreadable])
        followed = client.get("/v1/views/dead_letters/changes").json()
        assert sum(len(change["rows"]) for change in followed["changes"]) == 5
        assert followed["changes"][0]["rows"][0]["reason"]
        last = client.get("/v1/status").json()["last_dead_letters"]
        assert [(each["position"], each["reason"]) for each in last] == [
            ("1-0", "divide by zero"), ("0-0", "divide by zero"), ("0-1", "unknown column: note")
        ]  # fmt: skip

        push(client, [{**ZERO, "amount": 10}])  # the row is corrected: its letters are taken back
        assert [each["position"] for each in letters(client, code="failed", table="orders")] == []
        last = client.get("/v1/status").json()["last_dead_letters"]
        assert [each["position"] for each in last[:2]] == ["1-0", "0-1"], "0-0 was taken back"


def test_replayed_once_after_the_settings_are_fixed(folder: Path) -> None:
    with running(folder) as (_, client):
        push(client, ROWS)
        assert totals(client) == BEFORE
        assert counts(replay(client, dry_run=True)) == (0, 3, 0, 1)
        assert len(letters(client)) == 4
    with running(folder, IGNORE) as (service, client):
        planned = replay(client, dry_run=True)
        assert counts(planned) == (2, 1, 0, 1)
        assert totals(client) == BEFORE
        found = replay(client, table="orders")
        assert counts(found) == (2, 1, 0, 1)
        assert found["processed"] is True
        assert totals(client) == AFTER
        assert list(found["not_replayable"]) == [
            "a node failed on it, and its table has the row: correct the row there, or change the circuit"
        ]
        assert found["again"] == [{"position": "0-2", "reason": "column id: expected int64, found a string"}]
        assert [(each["first"], each["last"]) for each in found["positions"]] == [(7, 9)], "the bad row is not pushed"
        waiting = letters(client, code="unreadable", replayed=False)
        assert [(each["position"], json.loads(each["text"])) for each in waiting] == [("0-2", WRONG)]
        last = client.get("/v1/status").json()["last_dead_letters"]
        assert [each["position"] for each in last if each["code"] == "unreadable"] == ["0-2"], (
            "what was replayed is not current"
        )
        assert [each["replayed"] for each in letters(client, code="unreadable")] == [
            {"partition": 0, "offset": 7}, None, {"partition": 0, "offset": 8}
        ]  # fmt: skip
        page = client.get("/v1/dead-letters", params={"replayed": "true"}).json()
        assert ([each["position"] for each in page["letters"]], page["total"], page["hidden"]) == (["0-1", "0-3"], 2, 2)
        service.checkpoint()
        assert counts(replay(client, last="0")) == (0, 1, 2, 1)
    with running(folder, IGNORE) as (service, client):
        service.rescale(3)
        assert counts(replay(client)) == (0, 1, 2, 1)
        assert len(letters(client)) == 4, "a replay that fails makes no letter"
        assert totals(client) == AFTER
    assert not diagnose(settings(folder)).findings


def test_a_replay_that_is_not_noted_is_found(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: the input log forgets which letters were replayed."""
    monkeypatch.setattr(Replayed, "find", lambda _self, _txn, _table, _place: None)
    with pytest.raises(AssertionError):
        test_replayed_once_after_the_settings_are_fixed(folder)


def test_notes_of_replays_go_after_their_letters(folder: Path) -> None:
    """The notes of three letters stay while the letters are kept, and go a checkpoint later."""
    few = ("letters.rows_max=3", "checkpoint.retention_s=0")
    with running(folder, *few) as (_, client):
        push(client, [*MORE, *MORE, *({**NOTED, "id": number} for number in range(3))])
        push(client, [*MORE, *MORE, *({**NOTED, "id": number} for number in range(3, 6))])
        assert len(letters(client)) == 3, "letters 0 to 2 went before they were replayed"
    with running(folder, IGNORE, *few) as (service, client):
        assert counts(replay(client)) == (3, 0, 0, 0)
        for _ in range(4):
            push(client, [GOOD])
            service.checkpoint()
        assert noted(folder) == 3, "their letters are kept"
        push(client, [*MORE, *MORE, WRONG])
        assert len(letters(client)) == 1
        found = [noted(folder)]
        for _ in range(4):
            push(client, [GOOD])
            service.checkpoint()
            found.append(noted(folder))
        assert (found[:2], found[-1]) == ([3, 3], 0)
        assert counts(replay(client)) == (0, 1, 0, 0)
    assert not diagnose(settings(folder)).findings


def noted(folder: Path) -> int:
    """The number of notes in the input log, as the doctor counts them."""
    found, _ = examine_input(folder / "data")
    return found.counts.get("replayed letters", 0)


def test_notes_that_go_too_early_are_found(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: the letters that are kept are not looked at."""
    monkeypatch.setattr(LetterLog, "first_offsets", lambda _self: {})
    with pytest.raises(AssertionError):
        test_notes_of_replays_go_after_their_letters(folder)


def test_steps_that_run_again_keep_their_letters_once(folder: Path, tmp_path: Path) -> None:
    """A stop without a checkpoint, other numbers of workers, and a backup, above which no letter is left."""
    with running(folder) as (service, client):
        push(client, ROWS[:4])
        backup = service.back_up(tmp_path / "backups")
        push(client, ROWS[4:])
        expected = letters(client)
    with running(folder) as (service, client):
        assert letters(client) == expected
        service.rescale(1)
        push(client, [{"id": None}, *MORE])
        assert letters(client)[:-1] == expected
    other = tmp_path / "other"
    config = settings(folder, f"pipeline.data_dir={other}")
    restore(tmp_path / "backups" / Path(backup["folder"]).name, config)
    with running(folder, f"pipeline.data_dir={other}") as (_, client):
        assert letters(client) == [each for each in expected if each["step"] < backup["step"]]
    assert not diagnose(config).findings


def test_a_service_that_keeps_no_letters_is_found(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: steps finish without keeping their letters; and none is dropped on the way back to a backup."""
    monkeypatch.setattr(Letters, "keep", NoLetters.keep)
    with pytest.raises(AssertionError):
        test_listed_queried_followed_and_named_in_the_status(folder, "files")


def slow(point: str) -> Any:
    """Return a point that is tried in the long runs alone."""
    return pytest.param(point, marks=pytest.mark.soak)


@contextmanager
def killed_at(folder: Path, point: str) -> Iterator[tuple[Client, Forked]]:
    """The service of a folder, in a process that kills itself at a point, once it answers or is dead."""
    said = folder / "said.txt"
    said.touch()
    before = said.stat().st_size
    (folder / "data" / "coordinator.json").unlink(missing_ok=True)
    process = Forked(said, serve, folder / "pipeline.toml", point, None, False)
    try:
        until(
            lambda: b"answering at" in said.read_bytes()[before:] or process.poll() is not None, "it answers or is dead"
        )
        yield dbsp.Client(folder / "pipeline.toml"), process
    finally:
        process.kill()
        process.wait(60)


@contextmanager
def deadly(folder: Path, point: str, *, ignore: bool = True) -> Iterator[tuple[Client, Forked]]:
    """The service in a process that kills itself at a point."""
    unknown = '[input]\nunknown_columns = "ignore"\n' if ignore else ""
    (folder / "pipeline.toml").write_text(settings_text(KEEP + unknown))
    with killed_at(folder, point) as both:
        yield both


@pytest.mark.parametrize("point", [slow("letters.keep:before:1"), "letters.keep:after:1", "runtime.run_step:after:1"])
def test_killed_around_a_step_its_letters_are_kept_once(folder: Path, point: str) -> None:
    body = "\n".join(map(json.dumps, ROWS)).encode()
    with deadly(folder, point, ignore=False) as (client, process):
        client.push("orders", body)
        until(lambda: process.poll() is not None, "it is dead")
    with deadly(folder, "", ignore=False) as (client, _):
        until(lambda: client.status()["lag_rows"] == 0, "the rows are processed")
        assert [(each["position"], each["row_offset"]) for each in client.dead_letters()] == [
            ("0-0", None), ("0-1", 1), ("0-2", 3), ("0-3", 5)
        ]  # fmt: skip


@pytest.mark.parametrize(
    "point", [slow("inputs.append_many:before:1"), "inputs.append_many:after:1", slow("letters.keep:before:1")]
)
def test_killed_around_a_replay_each_letter_is_replayed_once(folder: Path, point: str) -> None:
    with deadly(folder, "", ignore=False) as (client, _):
        client.push("orders", "\n".join(map(json.dumps, ROWS)).encode(), wait_s=60)
        client.checkpoint()
    with deadly(folder, point) as (client, process):
        with pytest.raises(DbspError):
            client.replay_dead_letters(wait_s=60)
        until(lambda: process.poll() is not None, "it is dead")
    with deadly(folder, "") as (client, _):
        found = client.replay_dead_letters(wait_s=60)
        assert sum(counts(found)[:3]) >= 3
        assert client.replay_dead_letters(last="0")["replayed"] == 0
        until(lambda: client.status()["lag_rows"] == 0, "the rows are processed")
        assert {row["customer"]: (row["orders"], row["amount"]) for row in client.view("per_customer")} == AFTER


def test_the_command_line(folder: Path) -> None:
    """A user's way: see the letters, export them, try a replay, replay, and see the view right."""
    with running(folder, IGNORE) as (_, client):
        push(client, [{"id": 1, "customer": "a", "amount": "7"}, GOOD, ZERO])
        url = str(client.base_url)

        def said(*arguments: str) -> str:
            done = script("cli", "--url", url, *arguments)
            assert done.returncode == 0, done.stderr
            return done.stdout

        listed = said("dead-letters", "list")
        assert "orders partition 0 offset 0: column amount: expected int64, found a string" in listed
        assert "2 of 2 dead letters" in listed
        assert "dead letter 0-" in said("status")
        lines = said("dead-letters", "export").splitlines()
        assert [json.loads(line)["code"] for line in lines] == [each["code"] for each in letters(client)]
        table = list(csv.DictReader(said("dead-letters", "export", "-o", "csv", "--code", "unreadable").splitlines()))
        assert [(row["table_name"], row["row_offset"], row["replayed"]) for row in table] == [("orders", "0", "")]
        assert "of 1 dead letters, 0 would be replayed" in said(
            "dead-letters", "replay", "--code", "unreadable", "--dry-run"
        )
        assert "of 1 dead letters, 0 were replayed" in said(
            "dead-letters", "replay", "--table", "orders", "--to", "0-0"
        )
        done = said("dead-letters", "replay", "--code", "unreadable", "--wait", "60")
        assert "1 still cannot be read; nothing is pushed, and their letters stay:" in done
        assert "  0-1: column amount: expected int64, found a string" in done
        assert "processed" not in done, "nothing was pushed"
        assert "2 of 2 dead letters" in said("dead-letters", "list")
        wrong = script("cli", "--url", url, "dead-letters", "replay", "--from", "soon")
        assert wrong.returncode == 2
        assert "first: string should match pattern" in wrong.stderr


def test_what_cannot_be_replayed_says_why(folder: Path, tmp_path: Path) -> None:
    landing = tmp_path / "landing"
    (landing / "orders").mkdir(parents=True)
    (landing / "names").mkdir()
    with running(folder, "input.kind=files", f"input.directory={landing}") as (service, client):
        (landing / "orders" / "one.jsonl").write_text("\n".join(map(json.dumps, [*MORE, WRONG])) + "\n")
        until(lambda: letters(client), "the file is read")
        assert (letters(client)[0]["table_name"], letters(client)[0]["replayed"]) == ("orders", None)
        found = client.post("/v1/dead-letters/replay").json()
        assert counts(found) == (0, 1, 0, 0)
        assert found["again"] == [{"position": "0-0", "reason": "column id: expected int64, found a string"}]
        with pytest.raises(ConfigError):
            service.query("SELECT * FROM dead_letter")


def _at(client: httpx.Client) -> list[tuple[str, str | None, str]]:
    return [(each["position"], each["table_name"], each["reason"]) for each in letters(client, code="failed")]


def test_letters_of_a_changed_circuit_are_those_of_its_nodes(tmp_path: Path) -> None:
    """Letters of an edited view go, those of a kept one stay under their numbers, whatever name their nodes have now."""
    zero = ("1-0", None, "divide by zero")
    with changed(write(tmp_path, CIRCUIT, more=KEEP)) as service, answering(service) as client:
        push(client, ROWS)
        push(client, [{"customer": "a", "size": 0}], "names")
        assert _at(client) == [("0-0", "orders", "divide by zero"), zero]
    edited = CIRCUIT.replace('share=1000 // col("amount")', 'share=col("amount") * 2')
    with changed(write(tmp_path, edited, more=KEEP)) as service, answering(service) as client:
        push(client, MORE)
        assert _at(client) == [zero], "the edited view fails no more"
        assert [each["position"] for each in letters(client)] == ["0-1", "0-2", "0-3", "1-0"], "the numbers stay"
        last = client.get("/v1/status").json()["last_dead_letters"]
        assert [each["position"] for each in last if each["code"] == "failed"] == ["1-0"]
    dropped = CIRCUIT.replace('"shares": shares, ', "").replace(', "joined": joined', "")
    again = CIRCUIT.replace("1000 //", "2000 //").replace(
        "pipeline =", 'more = orders.filter(col("id") > 5)\npipeline ='
    )
    again = again.replace('{"per_customer"', '{"more": more, "per_customer"')
    with changed(write(tmp_path, again, more=KEEP)) as service, answering(service) as client:
        push(client, MORE)
        found = letters(client, code="failed")
        assert [(each["table_name"], json.loads(each["text"])["id"]) for each in found] == [(None, 1), ("orders", 4)]
        assert found[0]["position"] == "1-0"
        names = [node.name for node in service.built.plan.nodes]
        assert all(each["node"] in names for each in found), "each under the present name of its node"
    with changed(write(tmp_path, dropped, more=KEEP)) as service, answering(service) as client:
        push(client, MORE)
        assert _at(client) == []
        assert len(letters(client, code="unreadable")) == 3, "rows that could not be read stay"


def test_letters_of_former_circuits_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: the letters are not looked at after a change."""
    monkeypatch.setattr(LetterLog, "adopt", lambda *_arguments: None)
    with pytest.raises(AssertionError):
        test_letters_of_a_changed_circuit_are_those_of_its_nodes(tmp_path)


def push_csv(client: httpx.Client, text: str, kind: str = "text/csv") -> None:
    answer = client.post(
        "/v1/tables/orders/rows", content=text.encode(), headers={"Content-Type": kind}, params={"wait": "true"}
    )
    assert answer.json().get("processed"), answer.text


def test_a_row_of_csv_is_replayed_as_its_header_says(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The columns are in the header's order, not in the table's; the first service reads no amount of 5, the second does."""

    def strict(values: pa.Array, wanted: pa.DataType) -> pa.Array:
        if b"5" in values.to_pylist():
            raise pa.ArrowInvalid("no fives")
        return _of_text(values, wanted)

    with running(folder) as (_, client), monkeypatch.context() as older:
        older.setattr(texts, "_of_text", strict)
        push_csv(client, 'customer,id,amount\n"a",2,5\nc,10,1\nc,11,1\n')
        push_csv(client, "customer\tid\tamount\na\t3\t5\na\t1\t700\n", "text/tab-separated-values")
        push_csv(client, "customer,id,amount\nb,4,0\nb,8 x,7\n")
    with running(folder) as (_, client):
        found = letters(client, code="unreadable")
        assert [(each["header"], each["text"]) for each in found] == [
            ("customer,id,amount", '"a",2,5'), ("customer\tid\tamount", "a\t3\t5"), ("customer,id,amount", "b,8 x,7")
        ]  # fmt: skip
        assert totals(client) == {"a": (1, 700), "b": (1, 0), "c": (2, 2)}
        done = replay(client, code="unreadable")
        assert counts(done) == (2, 1, 0, 0)
        assert done["again"][0]["reason"].startswith("column id: ")
        assert totals(client) == AFTER
        assert counts(replay(client, code="unreadable")) == (0, 1, 2, 0)
    assert not diagnose(settings(folder)).findings


def test_a_replay_without_the_header_is_found(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: the record of a push forgets the headers of its bad rows, as an older version did."""
    monkeypatch.setattr(chunk, "HEADERS_SINCE", chunk.NEWEST + 1)
    with pytest.raises(AssertionError):
        test_a_row_of_csv_is_replayed_as_its_header_says(folder, monkeypatch)


@pytest.mark.parametrize(
    ("header", "text", "why"),
    [
        ("", "7,a,1", "its text is no JSON object"),
        ("id,customer,amount", "7," + "a" * PAYLOAD_CHARS_MAX, "only the beginning of its text"),
        ("id,customer,amount", "7,\ufffd,1", "its text was not UTF-8"),
        ("id", "7,a", "its header has one column"),
        ("id,customer,amount", "7,a,1", None),
        ("id\tcustomer", "7\ta", None),
        ("", '  {"id": 7}', None),
    ],
)
def test_a_text_that_does_not_say_what_its_row_was_is_not_replayed(header: str, text: str, why: str | None) -> None:
    letter = Letter(
        step=0, number=0, code="unreadable", node=None, table="orders", partition=0, offset=0, unplaced=None, reason="",
        text=text, header=header,
    )  # fmt: skip
    found = unreadable(letter)
    assert found is None if why is None else found is not None and found.startswith(why)


def test_all_ways_to_read_letters_have_the_same_columns(folder: Path) -> None:
    """`code`, `table_name` and so on in the list, in SQL, in the status, and in changes of both kinds of output."""
    for kind in ("embedded", "files"):
        with running(folder, f"output.kind={kind}", f"pipeline.data_dir={folder / kind}") as (_, client):
            push(client, ROWS)
            listed = letters(client)
            sql = "SELECT * FROM dead_letters ORDER BY row_offset"
            columns = client.post("/v1/query", json={"sql": sql}).json()["columns"]
            changed = client.get("/v1/views/dead_letters/changes").json()["changes"][0]
            assert (set(listed[0]), set(columns)) == (set(COLUMNS), set(COLUMNS) - {"count"})
            names = [name for name in COLUMNS if name in changed["rows"][0]]
            assert names == list(CHANGED.names)
            shown = [{name: each[name] for name in names} for each in listed]
            assert sorted(map(str, shown)) == sorted(map(str, changed["rows"]))
            assert set(client.get("/v1/status").json()["last_dead_letters"][0]) <= set(COLUMNS)


def test_a_table_that_is_not_there_is_named(folder: Path) -> None:
    with running(folder) as (_, client):
        push(client, ROWS)
        for answer in (
            client.get("/v1/dead-letters", params={"table": "ordrs"}),
            client.post("/v1/dead-letters/replay", json={"table": "ordrs"}),
        ):
            assert answer.status_code == 404
            error = answer.json()["error"]
            assert error["message"] == "no such table: table=ordrs tables=['names', 'orders']"
            assert error["hint"] == "did you mean `orders`?"
        assert letters(client, table="names") == []


def test_an_export_has_the_form_of_all_commands_and_a_file_of_its_own(folder: Path, tmp_path: Path) -> None:
    with running(folder) as (_, client):
        push(client, ROWS)

        def export(*arguments: str) -> Any:
            return script("cli", "--url", str(client.base_url), "dead-letters", "export", *arguments)

        assert export("-o", "csv").stdout.splitlines()[0] == ",".join(COLUMNS)
        assert [json.loads(line) for line in export().stdout.splitlines()] == letters(client)
        file = tmp_path / "letters.csv"
        assert export("-o", "csv", "--file", str(file)).stdout == ""
        assert file.read_text() == export("-o", "csv").stdout
        former = export("-o", str(file))
        assert former.returncode == 2
        assert f"the file is given by --file {file}" in " ".join(former.stderr.split())
        named = export("--format", "csv")
        assert (named.stdout, "--format is deprecated: give -o csv" in named.stderr) == (file.read_text(), True)
