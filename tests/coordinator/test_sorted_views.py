"""Views that are sorted by columns: a prefix, and a range, read their rows alone."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dbsp
from dbsp.circuit.fingerprint import fingerprint
from dbsp.errors import CircuitError
from dbsp.runtime.leases import Wanted, condition_of
from dbsp.runtime.ranges import ColumnRange
from dbsp.trace import sorted_read
from dbsp.trace.chunks import ChunkStore

ROWS, CUSTOMERS, START = 120_000, 4, date(2020, 1, 1)
SCRIPT = """
create table visits (id bigint not null, customer varchar, day date, primary key (id)) with (append_only = true);
create materialized view by_customer with (sorted_by = 'Customer, day') as select customer, day, id from visits;
create materialized view by_day with (sorted_by = 'day') as select customer, day, id from visits;
"""


def rows() -> pa.Table:
    ids = np.arange(ROWS)
    days = [START + timedelta(days=int(each)) for each in ids // 100]
    return pa.table(
        {"id": ids, "customer": [f"c{each % CUSTOMERS}" for each in ids], "day": pa.array(days, pa.date32())}
    )


class Counted:
    """Counts the rows of the chunks that reads load."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows = 0
        original = sorted_read.SortedRead._window

        def window(own: Any, side: Any, chunks: ChunkStore) -> Any:
            self.rows += int(side.run.ref(side.chunk).rows)
            return original(own, side, chunks)

        monkeypatch.setattr(sorted_read.SortedRead, "_window", window)


def test_the_rows_of_a_range_alone_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    table = rows()
    with dbsp.open(dbsp.sql_circuit("shop", SCRIPT), workers=3) as run:
        for first in range(0, ROWS, 20_000):
            run.push("visits", table.slice(first, 20_000))
            run.step()
        leased = run._runtime.lease_views(("by_customer", "by_day"), run.step_number, run.layout)
        schema = next(view.schema for view in run.plan.views if view.name == "by_customer")
        some = ColumnRange(
            column="day", low=pa.scalar(START + timedelta(days=300)), high=pa.scalar(START + timedelta(days=302))
        )
        counted = Counted(monkeypatch)
        found = pa.concat_tables(leased.read("by_day", Wanted(ranges=(some,))))
        assert sorted(found.column("id").to_pylist()) == list(range(30_000, 30_300))
        assert counted.rows <= ROWS / 3, counted.rows  # of chunks of 20,000 rows
        customer = condition_of("by_customer", schema, {"customer": "c1"})
        counted.rows = 0
        assert len(pa.concat_tables(leased.read("by_customer", Wanted(equal=customer)))) == ROWS / CUSTOMERS
        of_customer = counted.rows
        assert of_customer < ROWS
        counted.rows = 0
        found = pa.concat_tables(leased.read("by_customer", Wanted(equal=customer, ranges=(some,))))
        assert sorted(found.column("id").to_pylist()) == list(range(30_001, 30_300, CUSTOMERS))
        assert counted.rows < of_customer, counted.rows
        leased.end()


def test_words_of_the_circuit() -> None:
    made = dbsp.sql_circuit("shop", SCRIPT)
    assert "view by_customer (materialized, sorted by customer, day)" in made.explain()
    t = dbsp.table("t", {"k": dbsp.INT64, "x": dbsp.INT64})
    plain, ordered = dbsp.circuit("c", {"v": t}), dbsp.circuit("c", {"v": t}, sorted_by={"v": "x"})
    assert fingerprint(plain) != fingerprint(ordered)


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"w": "x"}, "no materialized view to sort"),
        ({"v": "y"}, "no such column to sort"),
        ({"v": ["x", "x"]}, "different columns"),
        ({"v": []}, "at least one"),
    ],
)
def test_what_is_refused(wanted: dict[str, Any], message: str) -> None:
    t = dbsp.table("t", {"k": dbsp.INT64, "x": dbsp.INT64})
    with pytest.raises(CircuitError, match=message):
        dbsp.circuit("c", {"v": t}, sorted_by=wanted)


def test_only_a_materialized_view_is_sorted() -> None:
    with pytest.raises(CircuitError, match="no such option: option=sorted_by"):
        dbsp.sql_circuit("c", "create table t (x bigint); create view v with (sorted_by = 'x') as select x from t;")
