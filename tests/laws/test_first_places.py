"""Row numbers of which the first alone are wanted: a top-k gives the rows that numbering all of them and then choosing gives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dbsp
from dbsp import col
from dbsp.plan.plan import Plan
from dbsp.plan.planner import plan
from tests.pace import examples

T = dbsp.table("t", {"k": dbsp.INT64, "x": dbsp.INT64, "y": dbsp.STRING})
CONDITIONS: dict[str, tuple[Any, Callable[[int], bool]]] = {
    "less": (col("n") < 3, lambda n: n < 3),
    "at most": (col("n") <= 2, lambda n: n <= 2),
    "one": (col("n") == 2, lambda n: n == 2),
    "the other way round": (3 >= col("n"), lambda n: n <= 3),  # noqa: SIM300  (this is what is looked at)
    "between": ((col("n") >= 2) & (col("n") <= 3), lambda n: 2 <= n <= 3),
}
OTHERS = (col("n") > 2, col("n") < 1, col("n") <= 5_000, col("n") * 2 <= 4, col("n") <= col("x"), col("n") != 1)
ROWS = st.tuples(st.integers(0, 2), st.one_of(st.none(), st.integers(0, 3)), st.sampled_from(["a", "b"]))


def numbered(partition: list[str]) -> dbsp.Stream:
    """All rows, numbered."""
    return T.window(partition, [dbsp.desc("x")]).with_columns(n=dbsp.row_number())


def kinds(made: Plan) -> set[str]:
    """The kinds of nodes of a plan."""
    return {node.name.partition("#")[0] for node in made.nodes}


def operators(stream: dbsp.Stream) -> set[str]:
    """The kinds of nodes that a view of it has."""
    return kinds(plan(dbsp.circuit("c", {"v": stream})))


@pytest.mark.parametrize("partition", [["k"], []], ids=["per key", "of all"])
@pytest.mark.parametrize("name", sorted(CONDITIONS))
@settings(max_examples=examples(30), deadline=None)
@given(data=st.data())
def test_the_first_places_are_those_of_all_numbers(partition: list[str], name: str, data: st.DataObject) -> None:
    condition, wanted = CONDITIONS[name]
    chosen = numbered(partition).filter(condition)
    assert "top_k" in operators(chosen)
    assert "window" not in operators(chosen)
    held: Counter[tuple[Any, ...]] = Counter()
    workers = data.draw(st.integers(1, 3))
    with (
        dbsp.open(dbsp.circuit("all", {"v": numbered(partition)}), workers) as everything,
        dbsp.open(dbsp.circuit("first", {"v": chosen}), workers) as first,
    ):
        for _ in range(data.draw(st.integers(1, 4))):
            came = data.draw(st.lists(ROWS, max_size=6))
            went = [row for row in held.elements() if data.draw(st.booleans())]
            held = held + Counter(came) - Counter(went)
            for run in (everything, first):
                run.push("t", [dict(zip("kxy", row, strict=True)) for row in came])
                run.delete("t", [dict(zip("kxy", row, strict=True)) for row in went])
                run.step()
            rows = [(row, weight) for row, weight in everything.view("v").to_rows() if wanted(row[3])]
            assert sorted(first.view("v").to_rows(), key=repr) == sorted(rows, key=repr)


@pytest.mark.parametrize("condition", OTHERS, ids=str)
def test_other_conditions_leave_the_window_as_it_is(condition: Any) -> None:
    assert "window" in operators(numbered(["k"]).filter(condition))


def test_a_window_with_other_functions_or_readers_stays() -> None:
    more = T.window("k", "x").with_columns(n=dbsp.row_number(), before=dbsp.lag("x"))
    assert "window" in operators(more.filter(col("n") <= 2))
    both = plan(dbsp.circuit("c", {"v": numbered(["k"]), "w": numbered(["k"]).filter(col("n") <= 2)}))
    assert "window" in kinds(both)
    assert "top_k" not in kinds(both)
