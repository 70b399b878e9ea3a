"""The result over the rows that a sieve keeps is that over the whole view: generated statements, piece by piece."""

from __future__ import annotations

from collections import Counter
from random import Random

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dbsp.coordinator.query import sieve
from dbsp.coordinator.query.sieve import Sieve, Sifting
from dbsp.coordinator.query.statement import (
    WEIGHT,
    QueryLimits,
    parts_of,
    repeat_by_weight,
    run_query,
    sifting_connection,
)  # fmt: skip
from dbsp.errors import DbspError
from tests.pace import examples

PIECE = 16
COLUMNS = ["id", "name", "n", "x", "tags", "weight"]
SPARK = Random(5)
ROWS = pa.table(
    [
        pa.array(range(200), pa.int64()),
        pa.array([SPARK.choice(["", "a", "B", "ab", "b%", None]) for _ in range(200)]),
        pa.array([SPARK.choice([None, -1, 0, 1, 2, 7]) for _ in range(200)], pa.int64()),
        pa.array([SPARK.choice([None, 0.0, -0.0, 1.5, float("nan"), float("inf")]) for _ in range(200)]),
        pa.array([SPARK.choice([None, [], ["a"], [None, "b"]]) for _ in range(200)], pa.list_(pa.string())),
        pa.array([SPARK.randrange(3) for _ in range(200)], pa.int64()),
        pa.array([SPARK.choice([1, 1, 1, 2, -1]) for _ in range(200)], pa.int64()),
    ],
    names=[*COLUMNS, WEIGHT],
)
"""Rows with weights, and a column of the user's that is called `weight`, too."""
ATOMS = [
    "n > 0", "n is null", "x = 1.5", "lower(name) = 'ab'", "name like 'a%'", "name ilike 'A_'", "not (n < 2)",
    "n in (1, 7, null)", "name || 'x' > 'bx'", "id % 3 = 1", "v.n between 0 and 2", "len(tags) > 0", "list_contains(tags, 'b')",
    "x is not distinct from n",
    "coalesce(n, id) < 20", "case when n > 1 then name = 'a' else x > 0 end", "isnan(x)", "tags[1] = 'a'", "weight + n > 1",
    "cast(n as varchar) = '7'", "date '2024-01-01' + cast(n as int) > date '2024-01-01'", "length(name) <> n",
    "cast(name as int) > 1",
    # no part of a sieve, so that the view is read whole: the clock, chance, an alias, a pseudo-column, a subquery
    "now() is not null", "random() < 2", "m > 1", "rowid > 3", "n > (select avg(n) from other)",
    "nullif(n, 1) is null",
]  # fmt: skip
LISTS = ["id, n", "*", "id, n + 1 as m", "n as m, id, name as n", "v.id, 3 as m, upper(name) as name", "count(*) as m",
         "distinct n", "id, unnest(tags) as m", "id, row_number() over (order by id) as m", "sum(n) over (order by id) as m, id",
         "max(n) as m", "* exclude (x)", "* replace (n + 1 as n)", "id, random() > 2 as m"]  # fmt: skip
ORDERS = ["", "", "n, id", "m desc nulls first, id", "1 desc, 2, id", "x, name collate nocase desc, id", "lower(name), id desc",
          "m + 1, id", "all"]  # fmt: skip
conditions = st.recursive(
    st.sampled_from(ATOMS),
    lambda inner: st.builds("({} {} {})".format, inner, st.sampled_from(["and", "or"]), inner),
    max_leaves=4,
)


@st.composite
def statements(draw: st.DrawFn) -> str:
    """A statement over `v`; perhaps it is none."""
    where, order = draw(st.one_of(st.just(""), conditions)), draw(st.sampled_from(ORDERS))
    limit, offset = (
        draw(st.sampled_from(["", "0", "1", "5", "40", "500", "1 + 1", "10%"])),
        draw(st.sampled_from(["", "", "3"])),
    )
    parts = [("where", where), ("order by", order), ("limit", limit), ("offset", offset)]
    text = " ".join(f"{word} {part}" for word, part in parts if part)
    source = draw(
        st.sampled_from(["v", "v", "V", "v as v", "(select * from v) as v", "v as v(id, n, name, x, tags, weight)"])
    )
    return f"select {draw(st.sampled_from(LISTS))} from {source} {text}"


def sifted(found: Sieve | None) -> tuple[pa.Table, int, bool]:
    """The rows that are kept, with weights, the number of rows that were read, and whether the sieve failed."""
    if found is None:
        return ROWS, len(ROWS), False
    with sifting_connection(QueryLimits(), ()) as connection:
        sifting, read = Sifting("v", found, connection), 0
        for first in range(0, len(ROWS), PIECE):
            piece = ROWS.slice(first, PIECE)
            read += len(piece)
            if not sifting.add(repeat_by_weight(piece)):
                break
        table = sifting.table()
        return table.append_column(WEIGHT, pa.array([1] * len(table), pa.int64())), read, sifting.failed


def answered(sql: str, rows: pa.Table) -> Counter[str] | str:
    try:
        found = run_query(sql, {"v": rows, "other": ROWS}, QueryLimits(), ("v", "other"))
    except DbspError:
        return "an error"
    return Counter(map(str, found.to_pylist()))


def check(sql: str) -> Sieve | None:
    """Check a statement; return its sieve."""
    try:
        found = parts_of(sql, ("v", "other"))["v"].sieve
    except DbspError:
        return None
    if found is not None and not set(found.columns) <= set(COLUMNS):
        found = None  # as `part_of` does, which knows the columns
    kept, read, failed = sifted(found)
    ours, theirs = answered(sql, kept), answered(sql, ROWS)
    ordered, limited = " order by " in sql, " limit " in sql
    if isinstance(ours, str) or isinstance(theirs, str) or ordered or not limited:
        assert ours == theirs, sql
    else:  # any rows will do
        everything = answered(sql.partition(" limit ")[0], ROWS)
        assert isinstance(everything, Counter)
        assert ours.total() == theirs.total(), sql
        assert ours <= everything, sql
    if found is not None and found.first is not None and not failed:
        bound = found.first + 2 * PIECE if not found.ordered else found.first + sieve.RESIFTED_ROWS + 2 * PIECE
        assert len(kept) <= bound, sql
        assert found.ordered or read < len(ROWS) or len(kept) < found.first, sql
    return found


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sieve, "RESIFTED_ROWS", 8)


@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(sql=statements())
def test_a_sieve_keeps_all_rows_that_the_result_needs(sql: str) -> None:
    check(sql)


NOT_SIFTED = ATOMS[-6:]


@pytest.mark.parametrize("atom", ATOMS)
def test_each_condition_alone(atom: str) -> None:
    found = check(f"select id from v where {atom} limit 3 offset 1")
    assert (found is None) == (atom in NOT_SIFTED), atom
    check(f"select n as m, id, name as n from v where {atom} order by m, id limit 4")


def test_a_sieve_that_fails_leaves_the_error_to_the_statement() -> None:
    found = check("select id from v where name::int > 1")
    assert found is not None
    kept, read, failed = sifted(found)
    assert failed
    assert len(kept) > read // 2
    assert check("select id from v where case when id < 190 then false else name::int > 1 end limit 2") is not None


def test_a_sieve_without_its_offset_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sieve, "rows_needed", lambda limit: int(limit["limit"]["literal"]["text"]))
    with pytest.raises(AssertionError, match="offset 3"):
        check("select id from v where n > 0 order by n, id limit 5 offset 3")
