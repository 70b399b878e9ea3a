# ruff: noqa: E501 (golden plans are as wide as they are)
from __future__ import annotations

import pickle
from collections.abc import Callable

import pytest

import dbsp
from dbsp.operators.joins.join import JoinOperator
from dbsp.operators.receive import Receive
from dbsp.plan.explain import explain
from dbsp.plan.plan import Plan
from dbsp.plan.planner import plan

t = dbsp.table("t", {"k": dbsp.STRING, "x": dbsp.INT64, "f": dbsp.FLOAT64, "unused": dbsp.STRING})
u = dbsp.table("u", {"id": dbsp.INT64, "k": dbsp.STRING, "y": dbsp.INT32, "unused": dbsp.BINARY}, primary_key="id")


def text(made: Plan) -> str:
    return "\n".join(line.split("  at ")[0].rstrip() for line in explain(made).splitlines())


def planned(**views: object) -> Plan:
    return plan(dbsp.circuit("c", views))  # type: ignore[arg-type]


GOLDEN: dict[str, tuple[Callable[[], Plan], str]] = {
    "filters and projections below the exchange, sums instead of rows": (
        lambda: planned(v=t.filter(dbsp.col("x") > 0).group_by("k").aggregate(n=dbsp.count(), s=dbsp.sum("x"))),
        """
plan c: segments=2 exchanges=1 traces=1
segment 0
  #0 source t (k: string, x: int64, f: double, unused: string)
  #1 select k, x; filter (x > 0) of #0 (k: string, x: int64)
  #2 combine count(*), count(x), sum(x) by (k) of #1 (k: string)
      exchange 0 by (k) to #3 weights=4
segment 1
  #3 receive of exchange 0 (k: string)
  #4 group by (k) n = count, s = sum of #3 (k: string, n: int64, s: int64)
      trace 0 by (k) weights=4
  view v is #4, shown by trace 0
""",
    ),
    "a keyed table, joined; only needed columns travel and are kept": (
        lambda: planned(v=u.join(t, on="k").select("id", "x")),
        """
plan c: segments=4 exchanges=5 traces=4
segment 0
  #0 source u (id: int64, k: string, y: int32, unused: binary, __operation: int8, __position: int64)
  #1 select id, k, __operation, __position of #0 (id: int64, k: string, __operation: int8, __position: int64)
      exchange 0 by (id) to #2
  #4 source t (k: string, x: int64, f: double, unused: string)
  #6 select k, x of #4 (k: string, x: int64)
      exchange 2 by (k) to #7
segment 1
  #2 receive of exchange 0 (id: int64, k: string, __operation: int8, __position: int64)
  #3 upsert by (id) of #2 (id: int64, k: string)
      trace 0 by (id) with (k)
      exchange 1 by (k) to #5
  #7 receive of exchange 2 (k: string, x: int64)
      exchange 3 by (k) to #8
segment 2
  #5 receive of exchange 1 (id: int64, k: string)
  #8 receive of exchange 3 (k: string, x: int64)
  #9 join on k of #5, #8 (id: int64, x: int64)
      trace 1 by (k) with (id)
      trace 2 by (k) with (x)
      exchange 4 by (id, x) to #10
segment 3
  #10 receive of exchange 4 (id: int64, x: int64)
  view v is #10, trace 3 by (id, x)
""",
    ),
    "extremes, distinct counts and floats travel in one shuffle": (
        lambda: planned(
            v=t.group_by("k").aggregate(lo=dbsp.min("x"), hi=dbsp.max("x"), d=dbsp.count_distinct("x"), m=dbsp.avg("f"))
        ),
        """
plan c: segments=2 exchanges=3 traces=6
segment 0
  #0 source t (k: string, x: int64, f: double, unused: string)
  #1 select k, x, f of #0 (k: string, x: int64, f: double)
  #2 combine count(*) by (k) of #1 (k: string)
      exchange 0 by (k) to #5
  #3 combine bins of f by (k) of #1 (k: string, __bin__: int16)
      exchange 1 by (k) to #6
  #4 combine values of x by (k) of #1 (k: string, __value__x: int64)
      exchange 2 by (k) to #7
segment 1
  #5 receive of exchange 0 (k: string)
  #6 receive of exchange 1 (k: string, __bin__: int16)
  #7 receive of exchange 2 (k: string, __value__x: int64)
  #8 group by (k) m = avg(f); lo = min(x); hi = max(x); d = count_distinct(x) of #5, #6, #7 (k: string, lo: int64, hi: int64, d: int64, m: double)
      trace 0 by (k)
      trace 1 by (k) with (__bin__)
      trace 2 by (k) order __value__x with (__value__x)
      trace 3 by (k) with (__value__x)
      trace 4 by (k)
  view v is #8, trace 5 by (k) with (lo, hi, d, m)
""",
    ),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_plans(name: str) -> None:
    make, golden = GOLDEN[name]
    assert text(make()) == golden.strip()


def test_equal_circuits_have_equal_plans_and_plans_travel() -> None:
    def make() -> Plan:
        return planned(v=t.join(u, on="k").group_by("k").aggregate(n=dbsp.count()), w=t.distinct())

    assert explain(make()) == explain(make())
    assert explain(pickle.loads(pickle.dumps(make()))) == explain(make())


def test_equal_inputs_and_keys_share_one_exchange_and_one_node() -> None:
    narrow = t.select("k", "x")
    made = planned(a=narrow.join(t.select("k", "f"), on="k"), b=narrow.join(t.select("k", z="x"), on="k"))
    assert len({(e.sender, e.key) for e in made.exchanges}) == len(made.exchanges)
    lefts = [node.inputs[0] for node in made.nodes if isinstance(node.operator, JoinOperator)]
    assert len(set(lefts)) == 1
    same = planned(a=t.filter(dbsp.col("x") > 1).distinct(), b=t.filter(dbsp.col("x") > 1).distinct())
    assert len([node for node in same.nodes if node.name.startswith("distinct")]) == 1


def test_no_exchange_where_rows_already_are() -> None:
    counts = t.group_by("k").aggregate(n=dbsp.count())
    renamed = counts.select(key="k", n="n").filter(dbsp.col("n") > 1)
    made = planned(v=renamed.group_by("key").aggregate(most=dbsp.max("n")))
    assert [exchange.key for exchange in made.exchanges] == [("k",)]
    assert planned(v=u.top_k(1, by="y", partition_by="id")).segments == 2


def test_all_exchanges_of_one_depth_leave_one_segment() -> None:
    made = planned(v=u.join(t, on="k").group_by("y").aggregate(n=dbsp.count()), w=t.select("k").union(u.select("k")))
    for exchange in made.exchanges:
        assert made.nodes[exchange.sender].segment == exchange.depth
        assert made.nodes[exchange.receiver].segment == exchange.depth + 1
        assert isinstance(made.nodes[exchange.receiver].operator, Receive)
    for node in made.nodes:
        assert all(made.nodes[number].segment == node.segment for number in node.inputs)
        assert all(number < node.id for number in node.inputs)
    assert made.segments == max(exchange.depth for exchange in made.exchanges) + 2


def test_traces_are_numbered_once_and_in_order_and_views_are_among_them() -> None:
    made = planned(v=u.join(t, on="k").group_by("y").aggregate(n=dbsp.count()), w=t.distinct())
    assert [trace.id for trace in made.all_traces()] == list(range(len(made.all_traces())))
    for view in made.views:
        assert view.trace in made.traces(made.nodes[view.node].segment)


def test_state_lies_with_the_owner_of_its_key() -> None:
    """Every trace is arranged by the columns its rows were distributed by, so that a rescale can slice it."""
    made = planned(
        a=t.group_by("k").aggregate(n=dbsp.count_distinct("x"), m=dbsp.max("f"), s=dbsp.sum("f")),
        b=t.top_k(1, by="x"),
        c=t.select("x").difference(u.select(x=dbsp.col("id"))),
        d=u.filter(dbsp.col("y") > 0).select("k"),
    )
    keys = {exchange.receiver: exchange.key for exchange in made.exchanges}
    for node in made.nodes:
        for trace in node.traces:
            assert trace.arrangement.key in {keys[number] for number in node.inputs if number in keys}


def test_a_view_that_is_not_kept_needs_no_exchange() -> None:
    made = plan(dbsp.circuit("c", {"v": t.filter(dbsp.col("x") > 0)}, materialize=False))
    assert made.segments == 1
    assert made.exchanges == ()
    assert made.all_traces() == ()


def test_conditions_that_cannot_fail_move_below_what_keeps_state() -> None:
    joined = t.join(u, on="k").filter((dbsp.col("x") > 1) & (dbsp.col("y") < 5) & (dbsp.col("x") // dbsp.col("y") > 2))
    lines = text(planned(v=joined)).splitlines()
    assert any(line.strip().startswith("#") and "filter (x > 1)" in line and "of #0" in line for line in lines)
    assert any("filter (y < 5) of #" in line and "(id: int64" in line for line in lines)
    assert [line.split(" of ")[0].split(" ", 3)[3] for line in lines if "//" in line] == [
        "filter ((x // y.cast(int64)) > 2)"
    ]


def test_a_condition_on_keys_moves_below_a_group_by_and_one_on_results_does_not() -> None:
    counts = t.group_by("k").aggregate(n=dbsp.count()).filter((dbsp.col("k") == "a") & (dbsp.col("n") > 1))
    made = planned(v=counts)
    filters = {str(stage): node.segment for node in made.nodes for stage in getattr(node.operator, "stages", ())
               if str(stage).startswith("filter")}  # fmt: skip
    assert filters == {'filter (k == "a")': 0, "filter (n > 1)": 1}


def test_a_condition_stays_above_what_others_read() -> None:
    joined = t.join(u, on="k")
    made = planned(a=joined.filter(dbsp.col("x") > 1), b=joined)
    assert len([node for node in made.nodes if isinstance(node.operator, JoinOperator)]) == 1


def test_filtered_answers_stay_the_same() -> None:
    """Every operator under a filter that moves below it, against the same filter on the answer."""
    a, b = t.select("k", "x"), u.select("k", x=dbsp.col("y").cast(dbsp.INT64))
    condition = (dbsp.col("k") == "p") | dbsp.col("k").is_null()
    streams = {
        "join": a.join(b, on="k"),
        "union": a.union(b),
        "distinct": a.distinct(),
        "difference": a.difference(b),
        "group": a.group_by("k").aggregate(m=dbsp.max("x"), n=dbsp.count()),
        "top": a.top_k(1, by="x", partition_by="k"),
        "renamed": a.select(k=dbsp.col("k"), z="x").distinct().select("z", "k"),
    }
    views = streams | {
        f"filtered {name}".replace(" ", "_"): stream.filter(condition) for name, stream in streams.items()
    }
    for only in (views, {name: stream for name, stream in views.items() if "_" in name}):
        with (
            dbsp.open(dbsp.circuit("c", only), workers=2) as run,
            dbsp.open(dbsp.circuit("w", streams | {"u": u})) as whole,
        ):
            for table, rows in (
                ("t", [{"k": k, "x": x} for k in ("p", "q", None) for x in (1, 2, 2)]),
                ("u", [{"id": i, "k": "pq"[i % 2], "y": i % 3} for i in range(6)]),
            ):
                run.push(table, rows)
                whole.push(table, rows)
                run.step()
                whole.step()
            for name in streams:
                here = run.view(f"filtered_{name}").to_pylist()
                expected = [row for row in whole.view(name).to_pylist() if row["k"] in ("p", None)]
                assert sorted(map(repr, here)) == sorted(map(repr, expected)), name
