"""New views over rows that no state has kept: the step that fills reads them once more, where the input log has all of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dbsp.coordinator.build import load_plan, surveyed
from dbsp.coordinator.checks.doctor import diagnose
from dbsp.coordinator.service import Service
from dbsp.coordinator.settings.config import Config
from dbsp.errors import CircuitError
from dbsp.io.embedded_output import read_outputs
from dbsp.io.formats import decode_json
from tests.coordinator.test_evolving import changed, content, folded, pushed, ran, refused, write

pytestmark = pytest.mark.timeout(300)

TABLES = """
import dbsp
from dbsp import col, count

visits = dbsp.table("visits", {"page": dbsp.STRING, "user": dbsp.STRING, "ms": dbsp.INT64})
per_page = visits.group_by("page").aggregate(n=count())
"""
BEFORE = TABLES + 'pipeline = dbsp.circuit("web", {"per_page": per_page})\n'
PER_USER = TABLES + 'per_user = visits.group_by("user").aggregate(n=count(), slowest=dbsp.max("ms"))\n'
AFTER = PER_USER + 'pipeline = dbsp.circuit("web", {"per_page": per_page, "per_user": per_user})\n'
VISITS = pa.table({"page": ["/", "/", "/a", "/b"], "user": ["ann", "bob", "ann", "ann"], "ms": [5, 7, 90, 1]})
LATER = pa.table({"page": ["/", "/c"], "user": ["bob", "eve"], "ms": [70, 2]})
FIRST = {("ann", 3, 90): 1, ("bob", 1, 7): 1}
LAST = {
    "per_page": {("/", 3): 1, ("/a", 1): 1, ("/b", 1): 1, ("/c", 1): 1},
    "per_user": {("ann", 3, 90): 1, ("bob", 2, 70): 1, ("eve", 1, 2): 1},
}
KEEP = "[checkpoint]\nretention_s = 3600\n"
PARTS = "[input]\npartitions = 3\n"


def check(config: Config, service: Service) -> None:
    """What was there and what came later is in the views, each change once."""
    with service:
        assert content(service, "per_user") == FIRST
        pushed(service, LATER, "visits")
        for view, expected in LAST.items():
            assert content(service, view) == expected
    assert {view: folded(config, view) for view in LAST} == LAST
    assert not diagnose(config).findings


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_the_past_of_a_table_without_a_key_is_read_once_more(tmp_path: Path, workers: int) -> None:
    more = KEEP + PARTS
    config = write(tmp_path, BEFORE, workers, more)
    ran(config, VISITS.slice(0, 3), "visits")
    with Service(config) as service:
        service.wait_until_processed(service.push("visits", VISITS.slice(3), partition=2))
    config = write(tmp_path, AFTER, workers, more)
    found = surveyed(config, load_plan(config))
    assert found is not None
    assert "filled from the input log of: visits (4 rows)" in found.as_text("web")
    check(config, changed(config))
    steps = {step for step, _, table in read_outputs(config.data_dir, "per_page") if table.num_rows}
    assert steps == {0, 1, 3}, "a view that was there puts out nothing in step 2, which fills"


def test_without_all_rows_it_is_refused_and_says_what_would_do(tmp_path: Path) -> None:
    config = write(tmp_path, BEFORE)
    ran(config, VISITS.slice(0, 3), "visits")
    ran(config, VISITS.slice(3), "visits")
    refused(
        tmp_path,
        AFTER,
        "a new view needs all earlier rows of a table, and they are not kept: table=visits views=per_user",
    )
    with pytest.raises(CircuitError) as raised:
        surveyed(write(tmp_path, AFTER), load_plan(write(tmp_path, AFTER)))
    assert "[checkpoint] retention_s" in str(raised.value.hint)


def test_columns_that_nobody_has_read_come_out_of_the_log(tmp_path: Path) -> None:
    """Of a table with a primary key: rows that were replaced and deleted since are not there."""
    orders = """
import dbsp
orders = dbsp.table("orders", {"id": dbsp.INT64, "customer": dbsp.STRING, "amount": dbsp.INT64}, primary_key="id")
per_customer = orders.group_by("customer").aggregate(n=dbsp.count())
"""
    config = write(
        tmp_path, orders + 'pipeline = dbsp.circuit("web", {"per_customer": per_customer})\n', 2, KEEP + PARTS
    )
    with Service(config) as service:
        pushed(service, pa.table({"id": [1, 2, 3], "customer": ["a", "b", "b"], "amount": [1, 2, 3]}))
        pushed(service, pa.table({"id": [2], "customer": ["a"], "amount": [9]}))
        gone = pa.table({"id": [3], "customer": ["b"], "amount": [3]})
        service.wait_until_processed(service.push("orders", gone, delete=True))
    spent = 'spent = orders.group_by("customer").aggregate(amount=dbsp.sum("amount"))\n'
    both = 'pipeline = dbsp.circuit("web", {"per_customer": per_customer, "spent": spent})\n'
    config = write(tmp_path, orders + spent + both, 2, KEEP + PARTS)
    with changed(config) as service:
        assert content(service, "spent") == {("a", 10): 1}
        pushed(service, pa.table({"id": [1], "customer": ["b"], "amount": [5]}))
        assert content(service, "spent") == {("a", 9): 1, ("b", 5): 1}
        assert content(service, "per_customer") == {("a", 1): 1, ("b", 1): 1}
    assert folded(config, "spent") == {("a", 9): 1, ("b", 5): 1}


def test_state_is_taken_before_the_log(tmp_path: Path) -> None:
    """A table whose rows are kept is not read again, though its log has them all."""
    kept = BEFORE.replace('"per_page": per_page', '"per_page": per_page, "visits": visits')
    ran(write(tmp_path, kept, more=KEEP), VISITS, "visits")
    config = write(tmp_path, AFTER.replace('"per_page": per_page', '"per_page": per_page, "visits": visits'), more=KEEP)
    found = surveyed(config, load_plan(config))
    assert found is not None
    assert not found.change.backfill.past
    with changed(config) as service:
        assert content(service, "per_user") == FIRST


def test_a_table_that_never_had_a_row_has_no_past(tmp_path: Path) -> None:
    columns = '{"user": dbsp.STRING, "age": dbsp.INT64}, primary_key="user"'
    other = f'\nothers = dbsp.table("others", {columns})\nn = others.aggregate(n=count())\n'
    views = 'pipeline = dbsp.circuit("web", {"per_page": per_page, "n": n%s})\n'
    ran(write(tmp_path, TABLES + other + views % ""), VISITS, "visits")
    names = 'names = others.select("user", "age").distinct()\n'
    with changed(write(tmp_path, TABLES + other + names + views % ', "names": names')) as service:
        assert content(service, "names") == {}
        pushed(service, pa.table({"user": ["ann"], "age": [41]}), "others")
        assert content(service, "names") == {("ann", 41): 1}


def test_bad_rows_are_told_once(tmp_path: Path) -> None:
    """Rows of the log that could not be used were dead letters when they came; what fails in a new view is told now."""
    config = write(tmp_path, BEFORE, more=KEEP)
    with Service(config) as service:
        push: dict[str, Any] = {"page": ["/", "/a"], "user": ["ann", "bob"], "ms": [0, 4]}
        pushed(service, pa.table(push), "visits")
        bad = decode_json(b'[{"page": "/", "user": "eve", "ms": "x"}]', service.table("visits"))
        service.wait_until_processed(service.push("visits", bad))
    assert len(letters(config)) == 1
    shares = 'shares = visits.select("user", share=100 // col("ms"))\n'
    config = write(
        tmp_path,
        TABLES + shares + 'pipeline = dbsp.circuit("web", {"per_page": per_page, "shares": shares})\n',
        more=KEEP,
    )
    with changed(config) as service:
        assert content(service, "shares") == {("bob", 25): 1}
    (told,) = letters(config)[1:]
    assert told["origin"].startswith("apply")


def letters(config: Config) -> list[Any]:
    return [row for _, _, table in read_outputs(config.data_dir, "dead_letters") for row in table.to_pylist()]


def test_the_filling_is_replayed_from_the_log(tmp_path: Path) -> None:
    """The log keeps the rows as long as a version may be opened from which the backfill would be run again."""
    config = write(tmp_path, BEFORE, more=KEEP)
    ran(config, VISITS, "visits")
    config = write(tmp_path, AFTER, more="[checkpoint]\ninterval_s = 3600")
    service = changed(config)
    service.start()
    pushed(service, LATER, "visits")
    service.stop(now=True)
    with Service(config) as again:
        assert {view: content(again, view) for view in LAST} == LAST
        again.checkpoint()
        held = again.built.parts.inputs.floors()
        assert held["visits", 0] == 0, "the version before the backfill may still be opened"
        pushed(again, LATER, "visits")
        again.checkpoint()
        assert again.built.parts.inputs.floors()["visits", 0] > 0
    assert folded(config, "per_page")["/c", 2] == 1


def test_rows_out_of_files_are_read_again(tmp_path: Path) -> None:
    more = '[input]\nkind = "files"\ndirectory = "landing"\nlook_every_s = 0.05\npartitions = 2\n' + KEEP
    folder = tmp_path / "landing" / "visits"
    folder.mkdir(parents=True)

    def landed(service: Service, name: str, table: pa.Table, total: int) -> None:
        pq.write_table(table, folder / name)
        assert service.live_status.wait_for(lambda now: sum(now.processed.values()) == total, 60)

    with Service(write(tmp_path, BEFORE, more=more)) as service:
        landed(service, "1.parquet", VISITS.slice(0, 3), 3)
        landed(service, "2.parquet", VISITS.slice(3), 4)
    with changed(write(tmp_path, AFTER, more=more)) as service:
        assert content(service, "per_user") == FIRST
        landed(service, "3.parquet", LATER, 6)
        assert {view: content(service, view) for view in LAST} == LAST
