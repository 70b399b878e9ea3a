"""Extremes among sums: however rows are cut between workers and steps, a group's weights say what its rows say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dbsp
from dbsp.errors import InternalError
from dbsp.operators.groups.extremes import ExtremeMeasure, ExtremesForm
from dbsp.operators.groups.linear_form import LinearForm
from dbsp.operators.groups.measures import Limbs
from dbsp.zset.arrays import value_view
from dbsp.zset.batch import Batch, arrange, concat
from dbsp.zset.hashing import narrow_hash
from dbsp.zset.kernels.groups import ROWS_MIN
from dbsp.zset.order import number_words, numbers_of
from dbsp.zset.schema import FLOAT32, FLOAT64, INT8, INT64, STRING, UINT64, Schema

FULL_HASH = 64
SCHEMA = Schema.of({"k": STRING, "x": INT64, "y": UINT64, "f": FLOAT64})
COLUMNS = ("x", "y", "f")
FORM = ExtremesForm(
    linear=LinearForm(keys=SCHEMA.select(("k",)), measures=(Limbs("x", 2),)),
    extremes=tuple(ExtremeMeasure(column, greatest) for column in COLUMNS for greatest in (False, True)),
)
rows = st.tuples(
    st.none() | st.sampled_from(["", "a", "b", "c"]),
    st.none() | st.integers(-3, 3) | st.sampled_from([-(2**63), 2**63 - 1]),
    st.none() | st.integers(0, 3) | st.sampled_from([2**63, 2**64 - 1]),
    st.none() | st.sampled_from([0.0, -0.0, 1.5, -1.5, float("nan"), float("-inf"), float("inf")]),
)
many = st.builds(
    lambda some, times: some * times, st.lists(rows, min_size=1, max_size=8), st.integers(ROWS_MIN, ROWS_MIN + 9)
)


def rank(value: Any) -> tuple[bool, Any]:
    """NaN is above every number."""
    return str(value) == "nan", value


def expected(made: Iterable[tuple[Any, ...]]) -> dict[Any, list[str]]:
    """Of each key the number of rows and every extreme, as text (NaN is not equal to itself; -0.0 is 0.0)."""
    groups: dict[Any, list[tuple[Any, ...]]] = {}
    for key, *values in made:
        groups.setdefault(key, []).append(tuple(values))
    return {key: [str(len(some)), *(
        str(ended(find, [row[at] for row in some])) for at in range(len(COLUMNS)) for find in (min, max)
    )] for key, some in groups.items()}  # fmt: skip


def ended(find: Any, values: list[Any]) -> Any:
    """The extreme of the values that are there."""
    there = [value for value in values if value is not None]
    return find(there, key=rank) + 0 if there else None


def found(weights: Mapping[Any, np.ndarray], made: Iterable[tuple[Any, ...]]) -> dict[Any, list[str]]:
    """The same out of the weights of each key; those of a column without values in a group say nothing."""
    has = {(row[0], at) for row in made for at, value in enumerate(row[1:]) if value is not None}
    return {
        key: [str(sums[0]), *(
            str(number_of(extreme, sums) if (key, COLUMNS.index(extreme.column)) in has else None)
            for extreme in FORM.extremes
        )]
        for key, sums in weights.items()
    }  # fmt: skip


def number_of(extreme: ExtremeMeasure, sums: np.ndarray) -> Any:
    """The number that a pair of weights stands for."""
    first, last = FORM.slots(extreme)
    low, high = sums[first:last].tolist()
    word = np.array([(high << 32) | low], np.int64).view(np.uint64) ^ np.uint64(1 << 63)
    return numbers_of(word, SCHEMA[extreme.column].type)[0]


def arrived(steps: list[list[tuple[Any, ...]]], workers: int) -> dict[Any, np.ndarray]:
    """The weights of each key after steps whose rows come from so many workers."""
    kept: dict[Any, np.ndarray] = {}
    for step in steps:
        sent = [FORM.of(Batch.from_rows(SCHEMA, [(row, 1) for row in step[at::workers]])) for at in range(workers)]
        sent = [arrange(each, FORM.arrangement()) for each in sent]
        for each in sent:
            assert len({row[0] for row, _ in plain(each)}) == len(each), "one row for each group"
        came = FORM.arrived(concat([each.but(arrangement=None) for each in sent], FORM.arrangement().schema))
        keys = [row[0] for row, _ in plain(came)]
        nothing = np.zeros(FORM.kept().weights, np.int64)
        old = np.array([kept.get(key, nothing) for key in keys], np.int64).reshape(len(keys), len(nothing))
        kept.update(zip(keys, old + FORM.moved(old, came.weights), strict=True))
    return kept


def plain(batch: Batch) -> list[tuple[tuple[Any, ...], int]]:
    """The rows, whatever their weights."""
    return batch.but(weights=np.ones((len(batch), 1), np.int64), arrangement=None).to_rows()


@given(st.lists(st.lists(rows, max_size=12) | many, max_size=3), st.integers(1, 3), st.sampled_from([FULL_HASH, 1]))
def test_weights_say_what_the_rows_say(steps: list[list[tuple[Any, ...]]], workers: int, bits: int) -> None:
    with narrow_hash(bits) if bits < FULL_HASH else nullcontext():
        made = [row for step in steps for row in step]
        assert found(arrived(steps, workers), made) == expected(made)


@pytest.mark.parametrize("type_", [INT8, INT64, UINT64, FLOAT32, FLOAT64, dbsp.DATE, dbsp.TIMESTAMP, dbsp.DURATION])
def test_words_sort_as_numbers_and_give_them_back(type_: Any) -> None:
    whole = pa.array([0, 1, 5, 100, 127], pa.int32() if type_ == dbsp.DATE else pa.int64())
    array = whole.cast(type_)
    words = number_words(array)
    assert (words[1:] > words[:-1]).all()
    assert pa.array(numbers_of(words, type_)).equals(pa.array(value_view(array)))


def test_a_row_that_goes_is_refused() -> None:
    batch = Batch.from_rows(SCHEMA, [(("a", 1, 1, 1.0), -1)])
    with pytest.raises(InternalError, match="a row has a weight below 1"):
        FORM.of(batch)


def test_a_view_with_extremes_is_read_out_of_the_trace_of_its_sums() -> None:
    """One trace, where each would have had one of its own; a text, which no word tells apart, still has."""
    t = dbsp.table("t", {"k": dbsp.INT64, "day": dbsp.DATE, "x": dbsp.INT64, "s": dbsp.STRING}, append_only=True)
    numbers = t.group_by("k").aggregate(n=dbsp.count(), first=dbsp.min("day"), most=dbsp.max("x"), least=dbsp.min("x"))
    texts = t.group_by("k").aggregate(least=dbsp.min("s"), most=dbsp.max("x"))
    with dbsp.open(dbsp.circuit("demo", {"numbers": numbers, "texts": texts}), workers=2) as run:
        traces = [node.traces for node in run.plan.nodes if "group by" in str(node.operator)]
        assert sorted(map(len, traces)) == [1, 2]
        run.push("t", [{"k": 1, "day": date(2024, 2, 29), "x": 5, "s": "b"}, {"k": 1, "day": None, "x": -5, "s": "a"}])
        run.step()
        run.push(
            "t", [{"k": 1, "day": date(1969, 1, 1), "x": None, "s": None}, {"k": 2, "day": None, "x": None, "s": "c"}]
        )
        run.step()
        assert sorted(run.view("numbers").to_rows()) == [
            ((1, 3, date(1969, 1, 1), 5, -5), 1),
            ((2, 1, None, None, None), 1),
        ]
        assert sorted(run.view("texts").to_rows()) == [((1, "a", 5), 1), ((2, "c", None), 1)]
