"""Dead letters are a Z-set: added up over steps and workers they are what fails on the tables as they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dbsp
from dbsp import col
from dbsp.logs import DeadLetter
from tests.pace import examples

Letters = Counter[tuple[str, str, str]]

BIG = 1 << 62
ROW = {"k": dbsp.INT64, "x": dbsp.INT64}
t = dbsp.table("t", ROW)
keyed = dbsp.table("keyed", {"id": dbsp.INT64, **ROW}, primary_key="id")


def odd(rows: list[dict[str, Any]]) -> int:
    """Raises, and says what for, so that a group may fail for another reason than before."""
    if sum(row["x"] or 0 for row in rows) % 2:
        raise ValueError(f"odd: {rows[0]['x']}")
    return len(rows)


def circuit() -> dbsp.Circuit:
    both = t.union(keyed.drop("id"))
    groups = both.group_by("k").aggregate(total=dbsp.sum(col("x") * BIG.bit_length()), n=dbsp.sum("x"))
    sums = both.select("k", x=col("x") * (BIG // 4)).group_by("k").aggregate(total=dbsp.sum("x"))
    folded = both.group_by("k").aggregate(n=dbsp.fold_aggregate("x", function=odd, type=dbsp.INT64, order_by="x"))

    def further(ways: dbsp.Stream) -> dbsp.Stream:
        return ways.join(both, on={"x": "k"}).select("k", x=6 // col("x_right"))

    return dbsp.circuit(
        "letters",
        {
            "divided": both.select("k", y=12 // col("x")),
            "filtered": keyed.filter(12 // col("x") > 3),
            "groups": groups.filter(7 // col("n") > 0),
            "sums": sums,
            "all": both.aggregate(total=dbsp.sum(col("x") * (BIG // 4))),
            "folded": folded,
            "frames": both.window(partition_by="k", order_by="x").with_columns(
                s=dbsp.rolling(dbsp.sum(col("x") * (BIG // 2)), rows=1)
            ),
            "running": both.window(partition_by="k", order_by="x").with_columns(
                s=dbsp.rolling(dbsp.sum(col("x") * (BIG // 4)), rows=(None, 0))
            ),
            "totals": both.window(partition_by="k").with_columns(
                s=dbsp.rolling(dbsp.sum(col("x") * (BIG // 4)), rows=(None, None))
            ),
            "ways": dbsp.recursive(both, further),
            "pairs": t.join(keyed, on="k", where=12 // (col("x") - col("x_right")) > 0),
            "unmatched": t.join(keyed, on="k", how="left", where=12 // (col("x") - col("x_right")) > 0),
        },
    )


CIRCUIT = circuit()


def added_up(letters: Iterable[DeadLetter]) -> Letters:
    sums: Letters = Counter()
    for letter in letters:
        assert letter.weight != 0
        sums[letter.origin, letter.reason, letter.payload] += letter.weight
    return Counter({key: weight for key, weight in sums.items() if weight})


def afresh(bag: list[tuple[Any, ...]], rows: dict[int, tuple[Any, ...]]) -> Letters:
    """What a run notes that is given the tables as they are in one step."""
    with dbsp.open(CIRCUIT) as run:
        run.push("t", [dict(zip(ROW, row, strict=True)) for row in bag])
        run.push("keyed", [{"id": number, **dict(zip(ROW, row, strict=True))} for number, row in rows.items()])
        run.step()
        return added_up(run.dead_letters())


values = st.one_of(st.none(), st.integers(-3, 3))
plain = st.tuples(st.integers(0, 2), values)
actions = st.one_of(
    st.tuples(st.just("insert"), plain),
    st.tuples(st.just("insert"), plain),
    st.tuples(st.just("delete"), st.integers(0, 50)),
    st.tuples(st.just("replace"), st.integers(0, 4), plain),
    st.tuples(st.just("replace"), st.integers(0, 4), plain),
    st.tuples(st.just("remove"), st.integers(0, 4)),
    st.tuples(st.sampled_from(["step", "step", "checkpoint", "restart"])),
    st.tuples(st.just("rescale"), st.integers(1, 4)),
)


class Life:
    """A run, and its tables as they are."""

    def __init__(self, run: dbsp.Run) -> None:
        self.run = run
        self.bag: list[tuple[Any, ...]] = []
        self.rows: dict[int, tuple[Any, ...]] = {}

    def act(self, action: tuple[Any, ...]) -> None:
        match action:
            case ("insert", row):
                self.bag.append(row)
                self.run.push("t", [dict(zip(ROW, row, strict=True))])
            case ("delete", place):
                if self.bag:
                    row = self.bag.pop(place % len(self.bag))
                    self.run.delete("t", [dict(zip(ROW, row, strict=True))])
            case ("replace", number, row):
                self.rows[number] = row
                self.run.push("keyed", [{"id": number, **dict(zip(ROW, row, strict=True))}], partition=number % 2)
            case ("remove", number):
                if self.rows.pop(number, None):
                    self.run.delete("keyed", [{"id": number}], partition=number % 2)
            case ("step",):
                self.run.step()
            case ("checkpoint",):
                self.run.checkpoint()
            case ("restart",):
                self.run.restart()
            case ("rescale", workers):
                self.run.rescale(workers)


@settings(max_examples=examples(120), deadline=None, suppress_health_check=list(HealthCheck))
@given(history=st.lists(actions, min_size=4, max_size=40), workers=st.integers(1, 4))
def test_letters_add_up_to_what_fails_now(history: list[tuple[Any, ...]], workers: int) -> None:
    with dbsp.open(CIRCUIT, workers=workers, partitions=2) as run:
        life = Life(run)
        for action in [*history, ("step",)]:
            life.act(action)
        assert added_up(run.dead_letters()) == afresh(life.bag, life.rows)


@settings(max_examples=examples(40), deadline=None, suppress_health_check=list(HealthCheck))
@given(history=st.lists(actions, min_size=4, max_size=30))
def test_each_steps_letters_are_the_same_for_any_number_of_workers(history: list[tuple[Any, ...]]) -> None:
    found = []
    for workers in (1, 3):
        with dbsp.open(CIRCUIT, workers=workers, partitions=2) as run:
            life = Life(run)
            for action in [*history, ("step",)]:
                life.act(action)
            found.append(run.dead_letters())
    assert found[0] == found[1]


def test_a_row_that_comes_and_goes_in_one_step_is_no_letter() -> None:
    with dbsp.open(dbsp.circuit("c", {"v": t.select(y=12 // col("x"))})) as run:
        run.push("t", [{"k": 1, "x": 0}] * 3)
        run.delete("t", [{"k": 1, "x": 0}])
        run.step()
        assert [letter.weight for letter in run.dead_letters()] == [2]
        run.delete("t", [{"k": 1, "x": 0}] * 2)
        run.step()
        assert [letter.weight for letter in run.dead_letters()] == [2, -2]


def test_a_group_that_recovers_takes_its_letter_back() -> None:
    sums = t.select("k", x=col("x") * BIG).group_by("k").aggregate(total=dbsp.sum("x"))
    with dbsp.open(dbsp.circuit("c", {"sums": sums}), workers=2) as run:
        noted = []
        for change, rows in ((run.push, 2), (run.push, 2), (run.delete, 3), (run.push, 3)):
            change("t", [{"k": 1, "x": 1}] * rows)
            run.step()
            noted.append([(letter.step, letter.payload, letter.weight) for letter in run.dead_letters()])
        failed, back, again = (0, '{"k": 1}', 1), (2, '{"k": 1}', -1), (3, '{"k": 1}', 1)
        assert noted == [[failed], [failed], [failed, back], [failed, back, again]]
