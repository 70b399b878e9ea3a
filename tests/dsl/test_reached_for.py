"""What users of pandas, Polars and DuckDB reach for: equal to DuckDB's, over any split of insertions and deletions."""

from __future__ import annotations

from typing import Any

import pytest

import dbsp
from dbsp import col, testing
from dbsp.aggregates import shapes

T = dbsp.table(
    "t", {"id": dbsp.INT64, "k": dbsp.STRING, "x": dbsp.INT64, "l": dbsp.list_of(dbsp.INT64)}, primary_key="id"
)
ROWS = [
    {"id": n % 11, "k": [None, "a", "b"][n % 3], "x": [None, 0, 4, 5, -8][n % 5], "l": [None, [], [n, None, 2]][n % 3]}
    for n in range(26)
]
ORDER = "over (partition by k order by id)"
COUNTED = (
    "select key, value from (select unnest(map_entries(m), max_depth := 2) from (select histogram(x) as m from t))"
)


def kept(stream: dbsp.Stream, least: int) -> dbsp.Stream:
    return stream.filter(col("x") >= least)


VIEWS: dict[str, tuple[Any, str]] = {
    "value_counts": (T.value_counts("k", "x", name="n"), "select k, x, count(*) as n from t group by all"),
    "pct_change": (
        T.window("k", "id").select("id", p=dbsp.pct_change("x"), q=dbsp.pct_change(col("x") + 1, 2)),
        f"select id, x::double / nullif(lag(x) {ORDER}, 0) - 1 as p,"
        f" (x + 1)::double / nullif(lag(x + 1, 2) {ORDER}, 0) - 1 as q from t",
    ),
    "pipe": (T.pipe(kept, least=4).select("id"), "select id from t where x >= 4"),
    "histogram": (
        T.aggregate(h=dbsp.histogram("x")).explode("h").select(key=col("h.key"), value=col("h.value")),
        COUNTED,
    ),
    "approx_count_distinct": (
        T.group_by("k").aggregate(n=dbsp.approx_count_distinct("x")),
        "select k, count(distinct x) as n from t group by k",
    ),
    "lists": (
        T.select("id", s=col("l").list_sum(), m=col("l").list_max(), c=col("l").list_concat(col("l")).list_length()),
        "select id, list_sum(l)::bigint as s, list_max(l) as m, len(list_concat(l, l)) as c from t",
    ),
}
SCRIPT = {
    "histogram": "select h.key, h.value from (select unnest(h) as h from (select histogram(x) as h from t))",
    "approx_count_distinct": "select k, approx_count_distinct(x) as n from t group by k",
    "lists": "select id, list_sum(l) as s, list_max(l) as m, len(list_concat(l, l)) as c from t",
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_is_duckdbs(name: str) -> None:
    stream, sql = VIEWS[name]
    testing.check(dbsp.circuit("c", {"v": stream}), {"t": ROWS}, {"v": sql}, seeds=range(2))


@pytest.mark.parametrize("name", SCRIPT)
def test_a_query_is_duckdbs(name: str) -> None:
    made = dbsp.sql(SCRIPT[name], t=T)
    testing.check(dbsp.circuit("c", {"v": made}), {"t": ROWS}, {"v": VIEWS[name][1]}, seeds=[7])


def test_a_count_that_keeps_what_left_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    real = shapes.CountedValues.of

    def one_more(self: Any, rows: Any, bounds: Any) -> Any:
        return real(self, rows.take(range(len(rows))), bounds * 0)

    monkeypatch.setattr(shapes.CountedValues, "of", one_more)
    stream, sql = VIEWS["histogram"]
    with pytest.raises(AssertionError):
        testing.check(dbsp.circuit("c", {"v": stream}), {"t": ROWS}, {"v": sql}, seeds=range(3))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: T.window("k", "id").select(p=dbsp.pct_change("k")), "pct_change is for numbers"),
        (T.value_counts, "value_counts without a column"),
        (lambda: T.pipe("k"), "pipe takes a function"),  # type: ignore[type-var]
        (lambda: T.select(s=col("k").list_sum()), "for lists"),
        (lambda: T.select(s=col("l").list_concat(col("k"))), "lists of one type"),
        (lambda: T.aggregate(s=dbsp.skewness("k")), "skewness is for numbers"),
        (lambda: dbsp.sql("select hash() as h from t", t=T), "an argument is missing"),
        (lambda: dbsp.sql("select histogram() as h from t", t=T), "something is missing"),
    ],
)
def test_wrong_use_is_refused(make: Any, said: str) -> None:
    with pytest.raises(dbsp.CircuitError, match=said):
        make()


def test_a_sum_of_a_list_that_does_not_fit_fails_its_row() -> None:
    lists = [[2**62, 2**62], [2**62, 2**62, -1], [-(2**63)], [-(2**63), -1], [2**63 - 1, 1, -1]]
    view = T.select("id", s=col("l").list_sum())
    with dbsp.open(dbsp.circuit("c", {"v": view})) as run:
        run.push("t", [{"id": at, "l": row} for at, row in enumerate(lists)])
        assert dict(tuple(row.values()) for row in run.step()["v"]) == {
            at: sum(row) for at, row in enumerate(lists) if -(2**63) <= sum(row) < 2**63
        }
        assert len(run.dead_letters()) == 2
