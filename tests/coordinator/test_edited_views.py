"""A view that is edited, or dropped and made again, under its own name: it begins anew, and its followers are notified."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dbsp
from dbsp.coordinator.build import build, load_plan, surveyed
from dbsp.coordinator.checks.doctor import diagnose
from dbsp.coordinator.http.changes import ANEW_HEADER, EVENTS, NEXT_HEADER
from dbsp.coordinator.http.kinds import ARROW
from dbsp.coordinator.service import Service
from dbsp.coordinator.settings.config import Config
from dbsp.errors import BegunAnewError, CircuitError
from tests.coordinator import test_kept_data as kept_data
from tests.coordinator.shop import CIRCUIT, ORDERS, answering, script, settings, settings_text
from tests.coordinator.test_evolving import MORE, changed, content, pushed, ran, write
from tests.spark.waiting import until

pytestmark = pytest.mark.timeout(300)

EDITED = CIRCUIT.replace(
    'large = orders.filter(col("amount") > 500)', 'large = orders.select("id", half=col("amount") // 2)'
)
"""The view `large` with other rows and other columns."""
HALVES = {(1, 5): 1, (2, 300): 1, (3, 0): 1}
LATER = {(1, 5): 1, (2, 30): 1, (3, 0): 1, (4, 35): 1}
DROPPED = CIRCUIT.replace(', "large": large', "")


def told(service: Service, view: str, first: int = 0) -> Counter[tuple[Any, ...]]:
    """All changes from a step on, added up, by a follower that forgets its rows when it is told to."""
    rows: Counter[tuple[Any, ...]] = Counter()
    while True:
        page = service.changes(view, first, rows_max=1, anew=True)
        if page.anew is not None:
            rows.clear()
        for row in (row for step in page.steps for row in step.table.to_pylist()):
            weight = row.pop("weight")
            rows[tuple(row.values())] += weight
        if page.next == first:
            return Counter({row: weight for row, weight in rows.items() if weight})
        first = page.next


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("dropped", [False, True])
def test_the_new_view_is_there_and_followers_get_all_of_it(tmp_path: Path, workers: int, dropped: bool) -> None:
    """With an accepted start in between, with steps of its own, if the view is dropped first."""
    ran(write(tmp_path, CIRCUIT, workers))
    if dropped:
        with changed(write(tmp_path, DROPPED, workers)) as service:
            pushed(service, ORDERS.slice(0, 1))
    config = write(tmp_path, EDITED, workers)
    began = 2 if dropped else 1
    with changed(config) as service:
        assert content(service, "large") == HALVES
        for first in (0, *range(1, began + 1)):
            assert told(service, "large", first) == HALVES
        pushed(service, MORE)
        service.rescale(2)
    for _ in range(2):
        with Service(config) as service:
            assert content(service, "large") == LATER
            assert told(service, "large") == told(service, "large", began) == LATER
            with pytest.raises(BegunAnewError, match=f"the view began anew.*first={began} step={began}") as raised:
                service.changes("large", began)
            assert raised.value.step == began
            assert [step.step for step in service.changes("large", began + 1).steps] == [began + 1]
            assert content(service, "per_customer") == {("a", 2, 80): 1, ("b", 2, 61): 1}
            assert told(service, "per_customer", 0) == content(service, "per_customer"), "the others go on"
    assert not diagnose(config).findings


def test_it_is_edited_again_and_again(tmp_path: Path) -> None:
    """Back to what it was, too: then it begins anew once more."""
    ran(write(tmp_path, CIRCUIT))
    for number, circuit in enumerate((EDITED, CIRCUIT, EDITED), 1):
        with changed(write(tmp_path, circuit)) as service:
            assert content(service, "large") == (HALVES if circuit is EDITED else {(2, "b", 600): 1})
            assert told(service, "large") == content(service, "large")
            page = service.changes("large", number, anew=True)
            assert (page.anew, [step.step for step in page.steps], page.next) == (number, [number], number + 1)


def test_over_http(tmp_path: Path) -> None:
    ran(write(tmp_path, CIRCUIT))
    with changed(write(tmp_path, EDITED)) as service, answering(service) as client:
        pushed(service, MORE)
        path = "/v1/views/large/changes"
        refusal = client.get(path, params={"first": 1})
        assert (refusal.status_code, refusal.json()["error"]["code"]) == (416, "anew")
        assert "anew=true" in refusal.json()["error"]["hint"]
        page = client.get(path, params={"first": 1, "anew": True, "rows_max": 1}).json()
        assert (page["first"], page["anew"], page["next"]) == (1, 1, 2)
        assert [change["step"] for change in page["changes"]] == [1]
        assert "anew" not in client.get(path, params={"first": 2, "anew": True}).json()
        assert "anew" not in client.get(path, params={"first": 0}).json(), "who begins has nothing to forget"
        arrow = client.get(path, params={"first": 1, "anew": True}, headers={"Accept": ARROW})
        assert (arrow.headers[ANEW_HEADER], arrow.headers[NEXT_HEADER]) == ("1", "3")
        wait = client.get("/v1/views/per_customer/changes", params={"first": 1, "anew": True}).json()
        assert "anew" not in wait
        headers = {"Accept": EVENTS, "Last-Event-ID": "0"}
        assert client.get(path, headers=headers).status_code == 416
        with client.stream("GET", path, params={"anew": True}, headers=headers) as stream:
            lines = stream.iter_lines()
            events = "\n".join(next(lines) for _ in range(6)).split("\n\n")
        assert events[0] == 'event: anew\ndata: {"step": 1}'
        assert events[1].startswith("id: 1\ndata: ")
        assert len(json.loads(events[1].partition("data: ")[2])["rows"]) == 3


def test_a_view_that_begins_without_rows_tells_it_too(tmp_path: Path) -> None:
    ran(write(tmp_path, CIRCUIT))
    with changed(write(tmp_path, CIRCUIT.replace("> 500", "> 5000"))) as service, answering(service) as client:
        page = client.get("/v1/views/large/changes", params={"first": 1, "anew": True, "wait_s": 60}).json()
        assert (page["anew"], page["changes"], page["next"]) == (1, [], 2)
        (change,) = dbsp.Client(url=str(client.base_url)).changes("large", first=1)
        assert (change.step, change.anew, change.rows, change.next) == (1, True, (), 2)


def test_the_client_goes_on_over_a_beginning(tmp_path: Path) -> None:
    ran(write(tmp_path, CIRCUIT))
    with changed(write(tmp_path, EDITED)) as service, answering(service) as client:
        pushed(service, MORE)
        changes = list(dbsp.Client(url=str(client.base_url)).changes("large", first=1))
        assert [(change.step, change.anew, change.next) for change in changes] == [(1, True, 2), (2, False, 3)]
        rows: Counter[tuple[Any, ...]] = Counter()
        for change in changes:
            for row, weight in change:
                rows[tuple(row.values())] += weight
        assert {row: weight for row, weight in rows.items() if weight} == LATER
        first = list(dbsp.Client(url=str(client.base_url)).changes("large"))
        assert [change.anew for change in first] == [False, False]


# --- in SQL, as a user ----------------------------------------------------------------------------------------------

SCRIPT = """
create table orders (id bigint, customer varchar, amount bigint, primary key (id));
create {create} totals as select {columns} from orders group by customer;
"""
FIRST = SCRIPT.format(create="materialized view", columns="customer, sum(amount) as amount")
SECOND = SCRIPT.format(create="or replace materialized view", columns="customer, count(*) as n, max(amount) as best")


def sql(folder: Path, text: str) -> Config:
    (folder / "shop.sql").write_text(text)
    (folder / "pipeline.toml").write_text(settings_text().replace("circuit.py:pipeline", "shop.sql"))
    return settings(folder)


def test_create_or_replace_materialized_view(tmp_path: Path) -> None:
    ran(sql(tmp_path, FIRST))
    config = sql(tmp_path, SECOND)
    looked = script("serve", "pipeline.toml", "--check", "--accept-circuit", folder=tmp_path)
    assert looked.returncode == 0, looked.stderr
    assert "views edited: totals; each is filled anew\n" in looked.stdout
    assert "filled from what is kept of: upsert#2: upsert by (id)" in looked.stdout
    assert "begin anew at step 1 with all rows, and followers are notified: totals" in looked.stdout
    with changed(config) as service:
        assert content(service, "totals") == {("a", 1, 10): 1, ("b", 2, 600): 1}
        pushed(service, MORE)
        assert content(service, "totals") == {("a", 2, 70): 1, ("b", 2, 60): 1}
        assert told(service, "totals", 1) == content(service, "totals")


def test_a_table_is_not_replaced(tmp_path: Path) -> None:
    with pytest.raises(CircuitError, match=r"a table keeps its rows: it cannot be replaced .* at=.*shop\.sql:2:"):
        load_plan(sql(tmp_path, FIRST.replace("create table", "create or replace table")))


# --- outputs whose readers add up the changes ----------------------------------------------------------------------

FILES = '[output]\nkind = "files"\ndirectory = "out"\n'
SMALLER = CIRCUIT.replace("> 500", "> 5")
"""The view `large` with the same columns, and two rows of which one was there before."""
BOTH = {(1, "a", 10): 1, (2, "b", 600): 1}


def from_files(config: Config, view: str) -> dict[tuple[Any, ...], int]:
    """All changes of a view in its files, added up; rows are known by their values."""
    total: Counter[tuple[Any, ...]] = Counter()
    for path in sorted((config.folder / "out" / view).glob("step-*")):
        if path.suffix == ".parquet":
            for row in pq.read_table(path).to_pylist():
                weight = row.pop("weight")
                total[tuple(row.values())] += weight
            continue
        for line in map(json.loads, path.read_text().splitlines()):
            sign = 1 if "insert" in line else -1
            total[tuple((line.get("insert") or line["delete"]).values())] += sign * line.get("weight", 1)
    return {row: weight for row, weight in total.items() if weight}


@pytest.mark.parametrize("form", ["json", "parquet"])
def test_files_get_the_difference_between_the_old_view_and_the_new(tmp_path: Path, form: str) -> None:
    """Rows in both are not written again; also when it is edited back, and after later steps."""
    more = f'{FILES}format = "{form}"\n'
    ran(write(tmp_path, CIRCUIT, more=more))
    for step, circuit in enumerate((SMALLER, CIRCUIT, SMALLER), 1):
        config = write(tmp_path, circuit, more=more)
        looked = script("serve", "pipeline.toml", "--check", "--accept-circuit", folder=tmp_path)
        assert f"step {step} writes the changes, old rows retracted and new rows inserted: large" in looked.stdout
        with changed(config) as service:
            assert from_files(config, "large") == content(service, "large")
            assert content(service, "large") == (BOTH if circuit is SMALLER else {(2, "b", 600): 1})
        ending = "jsonl" if form == "json" else form
        (path,) = (config.folder / "out" / "large").glob(f"step-{step:012d}-*.{ending}")
        rows = path.read_text().splitlines() if form == "json" else pq.read_table(path).to_pylist()
        assert len(rows) == 1, "the row that is in both is not written"
    with Service(config) as service:
        pushed(service, MORE)
        assert from_files(config, "large") == content(service, "large")
    assert not diagnose(config).findings


@pytest.mark.parametrize("workers", [1, 3])
def test_json_files_hold_the_old_rows_under_their_columns(tmp_path: Path, workers: int) -> None:
    """They are retracted before the new rows are inserted."""
    ran(write(tmp_path, CIRCUIT, workers, more=FILES))
    config = write(tmp_path, EDITED, workers, more=FILES)
    with changed(config) as service:
        assert from_files(config, "large") == HALVES
        pushed(service, MORE)
        assert from_files(config, "large") == content(service, "large") == LATER
    lines = [path.read_text().splitlines() for path in (tmp_path / "out" / "large").glob("step-000000000001-*")]
    kinds = [["delete" in line for line in found] for found in lines]
    assert kinds == [sorted(each, reverse=True) for each in kinds]


UNSEEN = CIRCUIT.replace('"large": large}', '"large": large}, materialize=["per_customer"]')


@pytest.mark.parametrize(
    ("before", "between", "form", "story"),
    [
        (CIRCUIT, None, "parquet", "its columns changed, and all files of the format parquet have the same"),
        (CIRCUIT, DROPPED, "json", "it was dropped, and its rows with it"),
        (UNSEEN, None, "json", "it is not materialized, or a user's function makes its rows"),
    ],
)
def test_what_cannot_be_retracted_needs_another_name(
    tmp_path: Path, before: str, between: str | None, form: str, story: str
) -> None:
    more = f'{FILES}format = "{form}"\n'
    ran(write(tmp_path, before, more=more))
    if between is not None:
        with changed(write(tmp_path, between, more=more)):
            pass
    config = write(tmp_path, EDITED, more=more)
    with pytest.raises(CircuitError, match=rf"{story}.*: view=large output\.kind=files") as raised:
        surveyed(config, load_plan(config))
    assert "give it a name of its own, such as large_2" in str(raised.value.hint)
    if before is UNSEEN:
        with changed(write(tmp_path, CIRCUIT, more=more)):
            pass
        with changed(write(tmp_path, EDITED, more=more)):
            assert from_files(config, "large") == HALVES, "as the hint says"


def test_a_delta_table_of_rows_is_written_anew_in_one_version(tmp_path: Path) -> None:
    delta = pytest.importorskip("deltalake")
    more = '[delta]\ndirectory = "lake"\ninterval_s = 0.05\nkeys = { large = "id" }\nviews = ["large"]\n'
    keyed = CIRCUIT.replace('orders.filter(col("amount") > 500)', 'orders.select("id", n=col("amount"))')
    ran(write(tmp_path, keyed, more=more))
    edited = write(tmp_path, keyed.replace('n=col("amount")', 'n=-col("amount")'), more=more)
    shown = [{"id": 1, "n": -10}, {"id": 2, "n": -600}, {"id": 3, "n": -1}, {"id": 9, "n": -9}]

    def rows() -> list[dict[str, int]]:
        found = delta.DeltaTable(str(tmp_path / "lake" / "large")).to_pyarrow_table()
        return sorted(pa.table(found).to_pylist(), key=lambda row: row["id"])

    with changed(edited) as service:
        pushed(service, pa.table({"id": [9], "customer": ["c"], "amount": [9]}))
        until(lambda: rows() == shown, "the table has the edited view")


# --- a column is added ----------------------------------------------------------------------------------------------

WIDER = FIRST.replace("amount bigint, primary", "amount bigint, note varchar, primary")
NOTES = WIDER + "create materialized view notes as select note, count(*) as n from orders group by note;\n"


@pytest.mark.parametrize("workers", [1, 2])
def test_a_column_is_added_to_a_table(tmp_path: Path, workers: int) -> None:
    """Old rows are null there, whether they are read from state or, replayed, from the log; other views go on."""

    def text(made: str) -> Config:
        sql(tmp_path, made)
        (tmp_path / "pipeline.toml").write_text(
            settings_text("[checkpoint]\nretention_s = 3600\n", workers=workers).replace(
                "circuit.py:pipeline", "shop.sql"
            )
        )
        return settings(tmp_path)

    ran(text(FIRST))
    text(NOTES)
    looked = script("serve", "pipeline.toml", "--check", "--accept-circuit", folder=tmp_path)
    assert looked.returncode == 0, looked.stderr
    assert "views kept: totals\n" in looked.stdout
    assert "columns added: orders.note; old rows are null there" in looked.stdout
    service = changed(settings(tmp_path))
    service.start()
    assert content(service, "notes") == {(None, 3): 1}
    pushed(service, pa.table({"id": [2, 4], "customer": ["b", "a"], "amount": [60, 70], "note": ["x", None]}))
    service.stop(now=True)
    with Service(settings(tmp_path)) as service:
        assert content(service, "notes") == {(None, 3): 1, ("x", 1): 1}
        assert content(service, "totals") == {("a", 80): 1, ("b", 61): 1}
        assert told(service, "totals") == content(service, "totals")
    assert not diagnose(settings(tmp_path)).findings


def test_a_table_without_a_key_gets_a_column_out_of_the_log(tmp_path: Path) -> None:
    old = "create table t (a bigint);\ncreate materialized view n as select count(*) as n from t;\n"
    new = old.replace("(a bigint)", "(a bigint, b bigint)") + "create materialized view v as select a, b from t;\n"

    def text(made: str) -> Config:
        sql(tmp_path, made)
        text_ = settings_text("[checkpoint]\nretention_s = 3600\n").replace("circuit.py:pipeline", "shop.sql")
        (tmp_path / "pipeline.toml").write_text(text_)
        return settings(tmp_path)

    ran(text(old), pa.table({"a": [1, 2]}), "t")
    with changed(text(new)) as service:
        assert content(service, "v") == {(1, None): 1, (2, None): 1}
        pushed(service, pa.table({"a": [3], "b": [4]}), "t")
        assert content(service, "v") == {(1, None): 1, (2, None): 1, (3, 4): 1}
        assert content(service, "n") == {(3,): 1}


def test_data_of_0_1_0_are_edited_and_widened(tmp_path: Path) -> None:
    archive = next(each for each in kept_data.KEPT if each.name == "0.1.0-embedded.zip")
    config = settings(kept_data.unpacked(archive, tmp_path))
    with Service(config, build(config, accepting=["0.1.0"])) as service:
        before = content(service, "per_customer")
    wider = EDITED.replace('"amount": dbsp.INT64}', '"amount": dbsp.INT64, "note": dbsp.STRING}')
    (tmp_path / "circuit_2.py").write_text(wider)
    (tmp_path / "pipeline.toml").write_text(
        (tmp_path / "pipeline.toml").read_text().replace("circuit.py", "circuit_2.py")
    )
    config = settings(tmp_path)
    with Service(config, build(config, evolve=True)) as service:
        assert content(service, "per_customer") == before
        assert len(content(service, "large")) == 60
        pushed(service, pa.table({"id": [0], "customer": ["a"], "amount": [8], "note": ["x"]}))
        assert (0, 4) in content(service, "large")
        assert told(service, "per_customer") == content(service, "per_customer")
