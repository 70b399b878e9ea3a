"""Making, reading and refusing batches; overflow; equality."""

from __future__ import annotations

import datetime as dt
import pickle
from decimal import Decimal
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dbsp.errors import CapacityError, CircuitError, DataError, InternalError
from dbsp.zset.arrays import gather, pick
from dbsp.zset.batch import Batch, arrange, concat, consolidate, equal_keys, take_all
from dbsp.zset.batch_rows import equal_rows
from dbsp.zset.encoding import encode
from dbsp.zset.hashing import narrow_hash
from dbsp.zset.kernels import RUN_SHIFT
from dbsp.zset.merge import merge
from dbsp.zset.schema import FLOAT64, INT32, INT64, STRING, Arrangement, Column, Schema, list_of, schema_of, struct_of
from tests.pace import examples
from tests.zset.strategies import TYPES, VALUES, arrangements, batches, canonical, contents

PAIR = Schema.of({"a": INT64, "b": STRING})


def test_collisions_of_a_b_a() -> None:
    """Rows that come as A, B, A under one hash consolidate."""
    with narrow_hash(0):
        rows = [((1, "x"), 1), ((2, "y"), 1), ((1, "x"), -1), ((2, "y"), 1)]
        assert consolidate(Batch.from_rows(PAIR, rows)).to_rows() == [((2, "y"), 2)]
        many = Batch.of(PAIR, [np.arange(1000) % 7, pa.array(["z"] * 1000)])
        assert len(merge(consolidate(many), consolidate(many))) == 7


def test_from_arrow_and_back() -> None:
    """Chunks are joined, dictionaries decoded, wide strings narrowed, nanoseconds cut."""
    table = pa.table(
        {
            "d": pa.chunked_array([pa.array(["x", "y"]).dictionary_encode(), pa.array(["y"]).dictionary_encode()]),
            "l": pa.array(["p", None, "q"], pa.large_string()),
            "t": pa.array([dt.datetime(2026, 1, 1)] * 3, pa.timestamp("s")),
            "f": pa.array([-0.0, float("nan"), 1.0]),
        }
    )
    batch = Batch.from_arrow(table, weights=np.array([1, -1, 2]))
    assert [str(c.type) for c in batch.schema] == ["string", "string", "timestamp[us]", "double"]
    assert batch.column("d").to_pylist() == ["x", "y", "y"]
    assert str(batch.column("f")[0].as_py()) == "0.0"
    assert batch.to_arrow().column("weight").to_pylist() == [1, -1, 2]
    assert batch.to_arrow(None).column_names == ["d", "l", "t", "f"]
    again = Batch.from_arrow(batch.to_arrow(None), batch.schema, batch.weight)
    assert encode(again) == encode(batch)


def test_schema_of_refuses_what_is_not_supported() -> None:
    """A map is an error that names the column."""
    with pytest.raises(CircuitError, match="column=x"):
        schema_of(pa.schema([("x", pa.map_(pa.string(), pa.int64()))]))


def test_schema_of_looks_into_lists_and_structs() -> None:
    """Wide strings, dictionaries, and promises of no nulls inside."""
    inner = pa.struct([pa.field("a", pa.large_string(), nullable=False), ("b", pa.dictionary(pa.int32(), pa.string()))])
    schema = schema_of(pa.schema([("x", pa.large_list(pa.field("element", inner, nullable=False)))]))
    assert schema["x"].type == list_of(struct_of({"a": STRING, "b": STRING}))
    assert str(schema["x"].type) == "list<item: struct<a: string, b: string>>"


def test_of_refuses_what_does_not_fit() -> None:
    """Overflowing casts, broken promises of no nulls, missing columns."""
    narrow = Schema((Column("a", INT32, nullable=False),))
    with pytest.raises(DataError, match="column does not fit: column=a"):
        Batch.of(narrow, [pa.array([2**40])])
    with pytest.raises(DataError, match="null in a column that rules it out: column=a nulls=1"):
        Batch.of(narrow, [pa.array([None], INT32)])
    with pytest.raises(DataError, match="missing columns"):
        Batch.from_arrow(pa.table({"b": [1]}), narrow)


def test_a_batch_checks_itself() -> None:
    """Wrong lengths, types and weights are our bug."""
    ones = np.ones((1, 1), np.int64)
    with pytest.raises(InternalError, match="wrong number of columns"):
        Batch(schema=PAIR, columns=(), weights=ones)
    with pytest.raises(InternalError, match="wrong column: column=b"):
        Batch(schema=PAIR, columns=(pa.array([1]), pa.array([1])), weights=ones)
    with pytest.raises(InternalError, match="weights must be int64"):
        Batch(schema=PAIR, columns=(pa.array([1]), pa.array(["x"])), weights=np.ones(1, np.int64))
    with pytest.raises(InternalError, match="contiguous"):
        Batch(schema=Schema.of({"a": INT64}), columns=(pa.array([1, 2]),), weights=np.ones((2, 3), np.int64)[:, :1])
    with pytest.raises(InternalError, match="another schema"):
        arrange(Batch.empty(PAIR), Arrangement(schema=Schema.of({"a": INT64}), key=("a",)))
    with pytest.raises(InternalError, match="weights per row"):
        arrange(Batch.empty(PAIR), Arrangement(schema=PAIR, key=("a",), weights=2))
    with pytest.raises(InternalError, match="arranged alike"):
        merge(Batch.empty(PAIR), Batch.empty(PAIR))


@settings(max_examples=examples(150), deadline=None)
@given(st.data(), st.integers(1, 2), st.booleans())
def test_taking_of_all_is_taking_of_each(data: st.DataObject, weights: int, words: bool) -> None:
    """Of every type, with nulls and without, of slices, of none."""
    arrangement = data.draw(arrangements(weights))
    held = [
        arrange(data.draw(batches(arrangement.schema, weights)), arrangement)
        for _ in range(data.draw(st.integers(1, 4)))
    ]
    parts = []
    for batch in held:
        rows = st.lists(st.integers(0, max(len(batch) - 1, 0)), max_size=5 if len(batch) else 0)
        parts.append((batch, np.array(data.draw(rows), np.int64)))
    made = take_all(parts, words=words)
    wanted = concat([batch.take(rows, words=words) for batch, rows in parts], words=words)
    assert encode(made.loose()) == encode(wanted.loose())
    if len(made) and words:
        for mine, other in zip(made.words, wanted.words, strict=True):
            assert (mine is None) == (other is None)
            assert mine is None or (mine == other).all()
    else:
        assert words or made.key_hash is made.order_code is made.row_hash is None


def test_concat_refuses_different_schemas() -> None:
    """The types must agree, the names follow the first."""
    with pytest.raises(CircuitError, match="different schemas"):
        concat([Batch.from_rows(PAIR, [(1, "x")]), Batch.from_rows(Schema.of({"a": INT64}), [(1,)])])
    with pytest.raises(CircuitError, match="nothing to concatenate"):
        concat([])
    assert len(concat([], PAIR)) == 0
    assert concat([Batch.empty(PAIR, 2)]).weights.shape == (0, 2)
    strict = Schema((Column("a", INT64, nullable=False), Column("b", STRING)))
    both = concat([Batch.from_rows(strict, [(1, "x")]), Batch.from_rows(PAIR, [(None, "x")])])
    assert both.schema == PAIR


@pytest.mark.parametrize("sign", [1, -1])
def test_overflow_is_an_error(sign: int) -> None:
    """Never a wrapped weight; a sum that comes back into range is fine."""
    most = 2**63 - 1
    rows = [((1, "x"), sign * most), ((1, "x"), sign * 2)]
    with pytest.raises(CapacityError, match="weight overflow"):
        consolidate(Batch.from_rows(PAIR, rows))
    kept = consolidate(Batch.from_rows(PAIR, [*rows, ((1, "x"), sign * -5)]))
    assert kept.to_rows() == [((1, "x"), sign * (most - 3))]
    with pytest.raises(CapacityError, match="weight overflow"):
        merge(kept, consolidate(Batch.from_rows(PAIR, [((1, "x"), sign * 5)])))
    with pytest.raises(CapacityError, match="weight overflow"):
        Batch.from_rows(PAIR, [((1, "x"), -(2**63))]).negate()


def test_canonical_floats() -> None:
    """-0.0 and NaN with a payload are the same rows as 0.0 and NaN, also next to nulls and in slices."""
    schema = Schema.of({"f": FLOAT64})
    odd = np.array([0x7FF8_0000_0000_0001, 0xFFF8_0000_0000_0000], np.uint64).view(np.float64)
    values = pa.concat_arrays([pa.array([None, 1.0, -0.0, 0.0, None]), pa.array(odd)]).slice(1)
    batch = consolidate(Batch.of(schema, [values]))
    assert contents(batch) == {(1.0,): 1, (0.0,): 2, (None,): 1, ("nan",): 2}
    replaced = Batch.empty(schema).with_columns(schema, [pa.array([], FLOAT64)])
    assert len(replaced) == 0
    changed = Batch.of(schema, [[1.0]]).with_columns(schema, [pa.array([-0.0])])
    assert str(changed.column("f")[0].as_py()) == "0.0"


def test_small_methods() -> None:
    """take, filter, slice, project, weights."""
    batch = Batch.from_rows(PAIR, [((1, "x"), 1), ((2, None), -2), ((3, "z"), 3)])
    assert batch.take(np.array([2, 0])).to_rows() == [((3, "z"), 3), ((1, "x"), 1)]
    assert batch.filter(np.array([True, False, True])).to_rows() == [((1, "x"), 1), ((3, "z"), 3)]
    assert batch.slice(1, 2).to_rows() == [((2, None), -2)]
    assert batch.project(["b"]).schema.names == ("b",)
    assert batch.negate().weight.tolist() == [-1, 2, -3]
    assert batch.with_weights(np.array([4, 5, 6])).weight.tolist() == [4, 5, 6]
    assert batch.rows == len(batch) == 3
    assert batch.nbytes > 3 * 16
    arranged = consolidate(batch)
    assert arranged.take(np.array([1]), words=True).key_hash.tolist() == [arranged.key_hash[1]]
    assert arranged.take(np.array([1])).key_hash is None
    assert arranged.loose().arrangement is None
    with pytest.raises(InternalError, match="loose"):
        batch.words  # noqa: B018
    with pytest.raises(InternalError, match="several weights"):
        Batch.empty(PAIR, 2).weight  # noqa: B018
    assert Batch.from_rows(PAIR, [((1, "x"), (1, 2))]).to_rows() == [((1, "x"), (1, 2))]
    assert Batch.from_rows(PAIR, []).to_rows() == []


def test_batches_survive_pickle() -> None:
    """Also without our encoding."""
    batch = consolidate(Batch.from_rows(PAIR, [((1, "x"), 1), ((2, None), -2)]))
    assert encode(pickle.loads(pickle.dumps(batch))) == encode(batch)


@settings(max_examples=examples(100), deadline=None)
@given(data=st.data())
def test_equal_keys(data: st.DataObject) -> None:
    """Equality of any type against Python's, nulls and offsets included."""
    type_ = data.draw(st.sampled_from(TYPES))
    drawn = st.lists(st.none() | st.sampled_from(VALUES[type_]), min_size=1, max_size=8)
    sides = [data.draw(drawn) for _ in range(2)]
    arrays = [pa.array([None, *side], type_).slice(1) for side in sides]
    pairs = [(i, j) for i in range(len(sides[0])) for j in range(len(sides[1]))]
    rows = [np.array(side) for side in zip(*pairs, strict=True)]
    expected = [canonical(sides[0][i]) == canonical(sides[1][j]) for i, j in pairs]
    assert equal_keys(arrays[0], rows[0], arrays[1], rows[1]).tolist() == expected


def test_equal_rows() -> None:
    """All columns, or the named ones."""
    left = Batch.from_rows(PAIR, [(1, "x"), (1, None), (2, "y")])
    right = Batch.from_rows(PAIR, [(1, None), (1, "x")])
    i, j = np.array([0, 1, 2, 0]), np.array([1, 0, 1, 0])
    assert equal_rows(left, i, right, j).tolist() == [True, True, False, False]
    assert equal_rows(left, i, right, j, ["a"]).tolist() == [True, True, False, True]


def test_decimals_and_empty_schemas() -> None:
    """A key of decimals; rows without columns."""
    schema = Schema.of({"d": pa.decimal128(20, 2)})
    batch = Batch.from_rows(schema, [(Decimal("1.10"),), (Decimal("-1.10"),), (Decimal("1.10"),)])
    assert contents(consolidate(batch)) == {(Decimal("1.10"),): 2, (Decimal("-1.10"),): 1}
    nothing = Batch(schema=Schema(()), columns=(), weights=np.array([[2], [3]]))
    assert consolidate(nothing).to_rows() == [((), 5)]


@pytest.mark.parametrize("stretch", [1, 2, 5, 400])
@pytest.mark.parametrize("type_", [STRING, pa.binary(), INT64, INT32, pa.decimal128(5)])
@pytest.mark.parametrize("null", [False, True])
def test_rows_that_follow_each_other_are_gathered_as_any_others(stretch: int, type_: pa.DataType, null: bool) -> None:
    """From one column and from several, of columns that begin within others, with rows twice and rows left out."""
    values = [None if null and number % 5 == 0 else number * 37 % 1000 for number in range(2000)]
    whole = pa.array([None if value is None else str(value) for value in values]).cast(type_)
    starts = np.random.default_rng(stretch).permutation(np.arange(0, 1900, stretch))
    rows = np.concatenate([np.arange(start, min(start + stretch, 1900)) for start in starts])
    assert gather(whole[7:], np.tile(rows, 2)).equals(whole[7:].take(pa.array(np.tile(rows, 2))))
    assert gather(whole, rows[::-1]).equals(whole.take(pa.array(rows[::-1])))
    bounds = np.array([7, 800, 801, 1300, 1950])
    columns = [whole[begin:end] for begin, end in pairwise(bounds.tolist())]
    column = bounds.searchsorted(rows + 7, "right") - 1
    at = (column << RUN_SHIFT) + rows + 7 - bounds[column]
    assert pick(columns, at).equals(whole[7:].take(pa.array(rows)))
