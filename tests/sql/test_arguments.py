"""No clause is passed over in silence: an argument that the parser sets is read, or refused with its place."""

from __future__ import annotations

from typing import Any

import pytest
import sqlglot
from sqlglot import exp

import dbsp
from dbsp.sql import arguments
from dbsp.sql.errors import PlacedError

ORDERED = "over (partition by g order by a)"
T = dbsp.table(
    "t", {"g": dbsp.INT64, "a": dbsp.INT64, "v": dbsp.INT64, "s": dbsp.STRING, "l": dbsp.list_of(dbsp.INT64)}
)
ROWS = [{"g": g, "a": a, "v": v, "s": "x", "l": [1]} for g, a, v in ((1, 10, 5), (1, 20, 7), (1, 30, 6), (2, 40, 1))]
SAMPLES = (
    "select distinct g, sum(a) as x from t where a > 1 group by g having sum(a) > 1 order by x limit 2 offset 1",
    "select s ->> '$.a', l[1:2], regexp_replace(s, 'a', 'b', 'g'), round(a, 1), cast(a as varchar) from t",
    f"select rank() {ORDERED}, lag(a, 1) {ORDERED}, sum(a) over (order by a rows between 1 preceding and current row) from t",
    "with r as (select a from t) select * exclude (a) from (select t.g, r.a from t join r on t.a = r.a) as q",
    "select arg_max(a, v), array_agg(a order by v), string_agg(s, ','), quantile_cont(a, 0.5) from t",
    "select g from t union all select a from t",
    "select case when a > 1 then 2 else 3 end, a between 1 and 2, a in (1, 2), s like 'a%', coalesce(a, 1) from t",
)


def _nodes() -> dict[type, str]:
    """The kinds of nodes in the samples, each with a sample that has it."""
    return {type(node): text for text in SAMPLES for node in sqlglot.parse_one(text, read="duckdb").walk()}


KINDS = _nodes()
UNREAD = [
    (kind, key)
    for kind in KINDS
    for key in kind.arg_types  # type: ignore[attr-defined]  # sqlglot has no types
    if key not in arguments.READ.get(kind, ()) and key not in ("this", "expression", "expressions")
]


@pytest.mark.parametrize(("kind", "key"), UNREAD, ids=[f"{kind.__name__}-{key}" for kind, key in UNREAD])
def test_an_argument_that_nothing_reads_is_refused(kind: Any, key: str) -> None:
    statement = sqlglot.parse_one(KINDS[kind], read="duckdb")
    arguments.check_arguments(statement)
    node = next(node for node in statement.walk() if type(node) is kind)
    node.set(key, exp.Literal.number(1))
    with pytest.raises(PlacedError, match="the dialect does not have this"):
        arguments.check_arguments(statement)


@pytest.mark.parametrize(
    "clause",
    [
        "select g, sum(v) from t group by g with rollup",
        "select g, sum(v) from t group by g with totals",
        "select last_value(a) over (partition by g order by a rows between unbounded preceding and unbounded following"
        " exclude current row) from t",
        "select arg_max(a, v, 2) from t",
        "select rank(order by v) over (order by a) from t",
        "select array_agg(a ignore nulls) from t",
        "select l[1:4:2] from t",
        "select a from t order by a with fill limit 1",
        "select cast(s as timestamp(0)) from t",
        "with recursive r(n) as (select 1 union select n + 1 from r where n < 3) search depth first by n set o select * from r",
    ],
)
def test_a_clause_that_is_not_there_is_refused_with_its_place(clause: str) -> None:
    with pytest.raises(dbsp.CircuitError, match=r" text=.* sql=1:\d+ .*; "):
        dbsp.sql(clause, t=T)


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("select sum(v) over w2 as x from t window w1 as (partition by g), w2 as (w1 order by a)", [1, 5, 12, 18]),
        ("select rank() over (partition by g, g order by a) as x from t", [1, 1, 2, 3]),
        ("select * ilike 'v%' from t", [1, 5, 6, 7]),
        ("select a * 1e3+1 as x from t where a = 10", [10001.0]),
        ("select g from t group by distinct rollup (g), rollup (g)", [1, 2, None]),
        ("""select '{"a.b": 1, "a": {"b": 2}}' ->> 'a.b' as x from t where a = 10""", ["1"]),
        ("select regexp_replace('a.b', '.', 'Q', 'l') as x from t where a = 10", ["aQb"]),
        ("select json_array_length('{\"a\": 1}') as x from t where a = 10", [0]),
        ("select try_cast(300 as tinyint) as x from t where a = 10", [None]),
        ("select ('2020-01-01'::timestamptz)::varchar as x from t where a = 10", ["2020-01-01 00:00:00+00"]),
    ],
)
def test_what_was_passed_over_is_done(query: str, wanted: list[Any]) -> None:
    with dbsp.open(dbsp.circuit("c", {"v": dbsp.sql(query, t=T)})) as run:
        run.push("t", ROWS)
        found = [row[0] for row, weight in run.step()["v"].to_rows() for _ in range(weight)]
        assert run.dead_letters() == []
    assert sorted(found, key=str) == sorted(wanted, key=str)
