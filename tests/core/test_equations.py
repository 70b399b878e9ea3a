"""The paper's equations, on circuits: D and I are inverse, the chain rule, the bilinear rule, the rule of distinct.

Each law is two streams of one circuit that must bring the same Z-set in every step.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dbsp
from dbsp import col
from dbsp.core import delay, differentiate, incremental, integrate, lifted_distinct, lifted_join
from tests.pace import examples

COLUMNS = {"k": dbsp.INT64, "x": dbsp.INT64}
a, b = dbsp.table("a", COLUMNS), dbsp.table("b", COLUMNS)


def linear(stream: dbsp.Stream) -> dbsp.Stream:
    return stream.filter(col("x") > 0).select("k", x=col("x") * 2)


def doubled_then_once(stream: dbsp.Stream) -> dbsp.Stream:
    return lifted_distinct(linear(stream))


def join(left: dbsp.Stream, right: dbsp.Stream) -> dbsp.Stream:
    return lifted_join(left, right, "k")


def before(stream: dbsp.Stream) -> dbsp.Stream:
    """z⁻¹ I: all but what this step brought."""
    return delay(integrate(stream))


EQUATIONS = {
    "D undoes I": (differentiate(integrate(a)), a),
    "I undoes D": (integrate(differentiate(a)), a),
    "I is a sum with its own past": (integrate(a), a.union(before(a))),
    "D takes the past away": (differentiate(a).union(delay(a)), a),
    "delay commutes with I": (delay(integrate(a)), integrate(delay(a))),
    "delay commutes with D": (delay(differentiate(a)), differentiate(delay(a))),
    "linear: its own incremental form": (incremental(linear, a), linear(a)),
    "linear: of a sum": (linear(a.union(b)), linear(a).union(linear(b))),
    "linear: commutes with delay": (linear(delay(a)), delay(linear(a))),
    "chain rule": (incremental(doubled_then_once, a), incremental(lifted_distinct, incremental(linear, a))),
    "add rule": (
        incremental(lambda s: lifted_distinct(s).union(linear(s)), a),
        incremental(lifted_distinct, a).union(incremental(linear, a)),
    ),
    "bilinear rule": (
        incremental(join, a, b),
        join(a, b).union(join(before(a), b)).union(join(a, before(b))),
    ),
    "the engine's join is the bilinear rule": (a.join(b, "k"), incremental(join, a, b)),
    "the engine's distinct": (a.distinct(), incremental(lifted_distinct, a)),
    "distinct of distinct": (lifted_distinct(lifted_distinct(a)), lifted_distinct(a)),
    "distinct passes a filter": (
        lifted_distinct(a.filter(col("x") > 0)),
        lifted_distinct(a).filter(col("x") > 0),
    ),
    "delay of nothing": (delay(a.filter(col("x") > 99)), a.filter(col("x") > 99)),
}

row = st.fixed_dictionaries({"k": st.integers(0, 2), "x": st.integers(-1, 2)})
change = st.tuples(st.sampled_from(["a", "b"]), st.booleans(), row)
moments = st.lists(
    st.one_of(st.lists(change, max_size=6), st.sampled_from(["restart", "checkpoint", "rescale"])), max_size=8
)


@pytest.mark.parametrize("law", EQUATIONS)
@settings(max_examples=examples(25), deadline=None, suppress_health_check=list(HealthCheck))
@given(life=moments, workers=st.integers(1, 3))
def test_both_sides_bring_the_same_in_every_step(law: str, life: list[Any], workers: int) -> None:
    left, right = EQUATIONS[law]
    tables = {"a_": a, "b_": b}
    circuit = dbsp.circuit("equation", {"left": left, "right": right, **tables}, materialize=False)
    with dbsp.open(circuit, workers=workers, partitions=2) as run:
        for moment in life:
            if isinstance(moment, str):
                run.rescale(workers + 1) if moment == "rescale" else getattr(run, moment)()
                continue
            for table, comes, values in moment:
                (run.push if comes else run.delete)(table, [values])
            made = run.step()
            assert Counter(dict(made["left"].batch.to_rows())) == Counter(dict(made["right"].batch.to_rows()))


def test_the_streams_are_the_ones_of_the_paper() -> None:
    """The equations would hold for many readings; these values only for one."""
    made: dict[str, list[Any]] = {"delay": [], "integrate": [], "differentiate": []}
    views = {"delay": delay(a), "integrate": integrate(a), "differentiate": differentiate(a)}
    with dbsp.open(dbsp.circuit("streams", views, materialize=False)) as run:
        for push in ([{"k": 1, "x": 1}], [], [{"k": 2, "x": 2}]):
            run.push("a", push)
            for name, rows in run.step().items():
                made[name].append(rows.to_rows())
    one, two = ((1, 1), 1), ((2, 2), 1)
    assert made["delay"] == [[], [one], []]
    assert made["integrate"] == [[one], [one], [one, two]]
    assert made["differentiate"] == [[one], [((1, 1), -1)], [two]]
