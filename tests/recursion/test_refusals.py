"""What a recursion refuses, when, and in which words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import dbsp
from dbsp import col

edges = dbsp.table("edges", {"a": dbsp.INT64, "b": dbsp.INT64})
after = edges.rename({"a": "b", "b": "c"})


def following(paths: Any) -> Any:
    return paths.join(after, on="b").select("a", b="c")


def counted(paths: Any) -> Any:
    return following(paths).group_by("a").aggregate(b=dbsp.count())


def least_in_one_more(paths: Any) -> Any:
    inner = dbsp.recursive(paths, following)
    return following(inner).group_by("a").aggregate(b=dbsp.min("b"))


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "subtracts itself": (
        lambda: dbsp.recursive(edges, lambda p: edges.difference(following(p))),
        "subtracts what depends on itself",
    ),
    "count": (lambda: dbsp.recursive(edges, counted), "count cannot be inside a recursion"),
    "top k": (lambda: dbsp.recursive(edges, lambda p: p.top_k(1, ["a", "b"])), "TopK cannot be inside a recursion"),
    "min around a recursion": (
        lambda: dbsp.recursive(edges, least_in_one_more),
        "min and max cannot be in a recursion",
    ),
    "other columns": (lambda: dbsp.recursive(edges, lambda p: p.select("a")), "columns differ"),
    "other types": (
        lambda: dbsp.recursive(edges, lambda p: p.select("a", b=col("b").cast(dbsp.STRING))),
        "types differ",
    ),
    "no stream": (lambda: dbsp.recursive(edges, lambda _: 3), "defines its views"),  # type: ignore[arg-type, return-value]
    "other views": (lambda: dbsp.recursive({"x": edges}, lambda p: {"y": p}), "views=\\['x'\\] got=\\['y'\\]"),
    "no start": (lambda: dbsp.recursive({}, following), "starts from a stream or a dict"),
    "no rounds": (lambda: dbsp.recursive(edges, following, max_rounds=0), "max_rounds=0"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_where_it_is_written(case: str) -> None:
    make, message = REFUSED[case]
    with pytest.raises(dbsp.CircuitError, match=message) as caught:
        make()
    assert "test_refusals.py" in str(caught.value)
    assert caught.value.hint or case == "no rounds"


def test_a_body_s_stream_is_of_no_use_elsewhere() -> None:
    kept: list[Any] = []

    def body(paths: Any) -> Any:
        kept.append(paths)
        return following(paths)

    dbsp.recursive(edges, body)
    with pytest.raises(dbsp.CircuitError, match="read outside its definition: view=v"):
        dbsp.circuit("leak", {"v": kept[0]})


def growing() -> Any:
    numbers = dbsp.table("numbers", {"x": dbsp.INT64})
    return dbsp.recursive({"up": numbers}, lambda n: n.select(x=col("x") + 1), max_rounds=20)["up"]


def test_what_grows_for_ever_is_stopped_by_name() -> None:
    with dbsp.open(dbsp.circuit("growing", {"v": growing()})) as run:
        run.push("numbers", [{"x": 1}])
        with pytest.raises(
            dbsp.CapacityError, match=r"views=up max_rounds=20 step=0 line=.*test_refusals.py"
        ) as caught:
            run.step()
    assert "raise max_rounds=" in str(caught.value.hint)


def test_a_row_that_fails_inside_is_one_dead_letter_without_its_round() -> None:
    """The same row fails in every round at which it changes; what counts is whether it is there."""
    rest = dbsp.table("rest", {"a": dbsp.INT64})
    chain = dbsp.recursive(rest, lambda r: r.filter(col("a") > 0).select(a=(col("a") - 1)).filter(10 / col("a") > 0))
    with dbsp.open(dbsp.circuit("failing", {"v": chain}), workers=2) as run:
        run.push("rest", [{"a": 2}, {"a": 1}])
        run.step()
        letters = [(letter.payload, letter.weight) for letter in run.dead_letters()]
        assert sum(weight for _, weight in letters) == 1
        assert all("__round__" not in payload for payload, _ in letters)
        run.delete("rest", [{"a": 2}, {"a": 1}])
        run.step()
        assert sum(letter.weight for letter in run.dead_letters()) == 0


def test_restarts_give_the_same_dead_letters() -> None:
    rest = dbsp.table("rest", {"a": dbsp.INT64})
    chain = dbsp.recursive(rest, lambda r: r.select(a=col("a") - 1).filter(10 // col("a") > 0))
    with dbsp.open(dbsp.circuit("failing", {"v": chain}), workers=3) as run:
        run.push("rest", [{"a": 3}, {"a": 2}])
        run.step()
        before = run.dead_letters()
        run.restart()
        assert run.dead_letters() == before


def test_an_empty_step_costs_no_round() -> None:
    with dbsp.open(dbsp.circuit("idle", {"v": dbsp.recursive(edges, following)})) as run:
        run.push("edges", [{"a": 1, "b": 2}])
        run.step()
        assert run.step()["v"].to_rows() == []
        idle = [node for worker in run.reports[-1].workers for node in worker.nodes]
        busy = [node for worker in run.reports[0].workers for node in worker.nodes]
        assert len(idle) < len(busy)


def test_nulls_come_in_where_the_definition_brings_them() -> None:
    """The first guess is that of the start; the body is asked again when it gives nulls."""
    strict = dbsp.table("strict", {"a": dbsp.INT64}, primary_key="a")
    loose = dbsp.table("loose", {"a": dbsp.INT64})
    both = dbsp.recursive(strict, loose.union)
    assert both.schema["a"].nullable
    with dbsp.open(dbsp.circuit("nulls", {"v": both})) as run:
        run.push("loose", [{"a": None}])
        run.push("strict", [{"a": 1}])
        assert run.step()["v"].to_rows() == [((1,), 1), ((None,), 1)]
        run.delete("loose", [{"a": None}])
        assert run.step()["v"].to_rows() == [((None,), -1)]
