"""Texts held as codes: nothing tells but how long it takes. Every answer and every byte is that of the plain column."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dbsp.errors import CapacityError, DataError
from dbsp.zset import coded, kernels
from dbsp.zset.arrays import gather, gather_all, join, pick, plain_bytes
from dbsp.zset.batch import Batch, arrange, concat, keys_once, take_all
from dbsp.zset.coded import accepted, coding_of, is_coded, plain, with_codes
from dbsp.zset.encoding import decode, encode
from dbsp.zset.equality import equal_by_group, equal_keys
from dbsp.zset.hashing import hash_column
from dbsp.zset.kernels import RUN_SHIFT
from dbsp.zset.kernels.groups import PROBED_ROWS, ROWS_MIN
from dbsp.zset.merge import merge_all
from dbsp.zset.order import order_codes, sort_columns
from dbsp.zset.schema import BINARY, INT64, STRING, Arrangement, Column, OrderBy, Schema
from tests.zset import numpy_twins as reference
from tests.zset.strategies import TEXTS
from tests.zset.test_encoding import _forged

Positions = np.ndarray[Any, np.dtype[np.int64]]
SCHEMA = Schema((Column("key", INT64, nullable=False), Column("text", STRING), Column("data", BINARY)))


@st.composite
def texts(draw: st.DrawFn, type_: pa.DataType = STRING, rows: int | None = None) -> tuple[pa.Array, pa.Array]:
    """A column, plain and coded: nulls, values that no row has, values in any order, and an offset."""
    values = draw(st.lists(st.sampled_from(TEXTS), min_size=1, max_size=6, unique=True))
    count = draw(st.integers(0, 12)) if rows is None else rows
    lead = draw(st.integers(0, 9))
    codes = draw(
        st.lists(
            st.integers(-1 if draw(st.booleans()) else 0, len(values) - 1), min_size=count + lead, max_size=count + lead
        )
    )
    dictionary = pa.array([value if type_ == STRING else value.encode() for value in values], type_)
    index = pa.array(
        [None if code < 0 else code for code in codes], draw(st.sampled_from([pa.uint8(), pa.int32(), pa.uint16()]))
    )
    array = pa.DictionaryArray.from_arrays(index, dictionary).slice(lead)
    return plain(array), array


@st.composite
def batches(draw: st.DrawFn, rows_max: int = 12) -> tuple[Batch, Batch]:
    """A loose batch, with plain columns and with coded ones."""
    rows = draw(st.integers(0, rows_max))
    both = [draw(texts(STRING, rows)), draw(texts(BINARY, rows))]
    keys = pa.array(draw(st.lists(st.integers(0, 2), min_size=rows, max_size=rows)), INT64)
    weights = np.array(draw(st.lists(st.integers(-2, 2), min_size=rows, max_size=rows)), np.int64).reshape(-1, 1)
    made = tuple(Batch(schema=SCHEMA, columns=(keys, *columns), weights=weights) for columns in zip(*both, strict=True))
    return made[0], made[1]


def positions(draw: st.DrawFn, rows: int) -> Positions:
    return np.array(draw(st.lists(st.integers(0, rows - 1), max_size=20)) if rows else [], np.int64)


def same(found: pa.Array, expected: pa.Array) -> bool:
    plain(found).validate(full=True)
    return plain(found).to_pylist() == expected.to_pylist()


def agree(found: Batch, expected: Batch) -> None:
    """The same rows with the same words, and the same bytes."""
    assert found.to_rows() == expected.to_rows()
    assert [column.type for column in found.columns] == [column.type for column in expected.columns]
    assert encode(found) == encode(expected)
    assert found.nbytes == expected.nbytes


@given(st.data())
def test_what_is_asked_of_a_column(data: st.DataObject) -> None:
    """Hashes, order, equality, and rows taken."""
    (left, held), (right, other) = data.draw(texts()), data.draw(texts())
    assert np.array_equal(hash_column(held), hash_column(left))
    for by in (OrderBy("a"), OrderBy("a", descending=True, nulls_first=True)):
        assert np.array_equal(order_codes(held, by), order_codes(left, by))
    first = np.zeros(len(left), np.int8)
    assert np.array_equal(sort_columns([held], first), sort_columns([left], first))
    assert plain_bytes(held) == plain_bytes(left)
    rows = positions(data.draw, len(left))
    assert same(gather(held, rows), gather(left, rows))
    beside = (
        data.draw(st.permutations(rows.tolist())) if len(right) >= len(left) else [0] * len(rows) if len(right) else []
    )
    if len(beside) == len(rows):
        at = np.array(beside, np.int64)
        for a, b in ((held, other), (left, other), (held, right)):
            assert np.array_equal(equal_keys(a, rows, b, at), equal_keys(left, rows, right, at))
        shuffled = np.array(data.draw(st.permutations(rows.tolist())), np.int64)
        assert np.array_equal(equal_keys(held, rows, held, shuffled), equal_keys(left, rows, left, shuffled))
    if len(left):
        group = np.array(data.draw(st.lists(st.integers(0, 2), min_size=len(left), max_size=len(left))), np.int64)
        numbered, firsts = reference._by_first_rows(group)
        assert equal_by_group(held, numbered, firsts) == equal_by_group(left, numbered, firsts)


@given(st.data())
def test_columns_that_come_together(data: st.DataObject) -> None:
    """Dictionaries of their own, one for all, plain columns between them."""
    both = data.draw(st.lists(texts(), min_size=1, max_size=4))
    if data.draw(st.booleans()):
        whole = both[0]
        cut = data.draw(st.integers(0, 3))
        both.append((whole[0].slice(cut), whole[1].slice(cut)))
    plains = [left for left, _ in both]
    held = [right if data.draw(st.integers(0, 4)) else left for left, right in both]
    assert same(join(held), join(plains))
    rows = [positions(data.draw, len(array)) for array in plains]
    assert same(gather_all(held, rows), gather_all(plains, rows))
    places = [(number << RUN_SHIFT) + place for number, array in enumerate(plains) for place in range(len(array))]
    some = np.array(data.draw(st.lists(st.sampled_from(places), unique=True)) if places else [], np.int64)
    assert same(pick(held, some), pick(plains, some))


@given(st.data())
def test_batches_of_coded_columns(data: st.DataObject) -> None:
    """Arranged by number, by text, in an order; taken, cut, added up, negated, encoded."""
    key = data.draw(st.sampled_from([("key",), ("text",), ("key", "text", "data"), ()]))
    order = data.draw(st.sampled_from([(), (OrderBy("text", True),), (OrderBy("data"),), (OrderBy("key"),)]))
    arrangement = Arrangement(schema=SCHEMA, key=key, order=order)
    both = data.draw(st.lists(batches(), min_size=1, max_size=3))
    agree(concat([b for _, b in both]), concat([a for a, _ in both]))
    rows = [positions(data.draw, len(a)) for a, _ in both]
    agree(
        take_all([(b, at) for (_, b), at in zip(both, rows, strict=True)]),
        take_all([(a, at) for (a, _), at in zip(both, rows, strict=True)]),
    )
    arranged = [(arrange(a, arrangement), arrange(b, arrangement)) for a, b in both]
    for plainly, held in arranged:
        agree(held, plainly)
        agree(keys_once(held), keys_once(plainly))
        agree(held.negate(), plainly.negate())
        lo = data.draw(st.integers(0, len(held)))
        agree(held.slice(lo, len(held)), plainly.slice(lo, len(held)))
        agree(decode(encode(held), SCHEMA, arrangement), plainly)
    agree(merge_all([b for _, b in arranged]), merge_all([a for a, _ in arranged]))
    agree(held.project(["text"]), plainly.project(["text"]))


def column(values: int, rows: int, seed: int = 0, size: int = 9, nulls: bool = False) -> pa.Array:
    """So many rows of so many different texts."""
    rng = np.random.default_rng(seed)
    found = rng.integers(0, values, rows)
    names = [f"{value:0{size}}" for value in range(values)]
    return pa.array([None if nulls and row % 7 == 0 else names[value] for row, value in enumerate(found)], STRING)


def shuffled(array: pa.Array, seed: int = 1) -> pa.Array:
    """The same column coded, its dictionary in another order, with values that are not there."""
    encoded = array.dictionary_encode()
    order = np.random.default_rng(seed).permutation(len(encoded.dictionary) + 2)
    dictionary = pa.concat_arrays([encoded.dictionary, pa.array(["not", "there"])]).take(pa.array(order))
    index = pa.array(np.argsort(order)).take(encoded.indices)
    return pa.DictionaryArray.from_arrays(index.cast(pa.int32()), dictionary)


@pytest.mark.parametrize("nulls", [False, True])
@pytest.mark.parametrize(
    ("values", "rows", "is_shorter"),
    [
        (5, ROWS_MIN - 1, False), (5, ROWS_MIN, True), (1, ROWS_MIN, True), (256, 4000, True), (257, 4000, True),
        (3000, 5000, False), (PROBED_ROWS // 2 - 100, 9000, True), (70_000, 300_000, False), (1 << 17, 1 << 19, False),
    ],
)  # fmt: skip
def test_how_columns_are_written_follows_from_their_values(
    values: int, rows: int, is_shorter: bool, nulls: bool
) -> None:
    """Few texts are written once, whether they came as codes or not, and both ways give the same bytes."""
    array = column(values, rows, nulls=nulls)
    schema = Schema.of({"text": STRING})
    batch, held = (Batch.of(schema, [each]) for each in (array, shuffled(array)))
    assert is_coded(held.held[0])
    written = encode(batch)
    assert written == encode(held)
    back = decode(written, schema)
    assert is_coded(back.held[0]) == is_shorter
    assert back.columns[0].equals(array)
    assert encode(back) == written
    some = np.arange(0, rows, 3)
    assert encode(back.take(some)) == encode(batch.take(some))
    assert encode(back.slice(1, rows)) == encode(batch.slice(1, rows))
    together, apart = concat([back, back.slice(5, rows)]), concat([batch, batch.slice(5, rows)])
    assert encode(together) == encode(apart)


def test_late_values_leave_a_column_plain() -> None:
    """The first rows repeat, the others do not: the numbering is given up."""
    rows = 3 * PROBED_ROWS
    array = pa.concat_arrays([column(5, PROBED_ROWS), pa.array([f"late {row}" for row in range(rows)])])
    assert coding_of(array) is None
    assert coding_of(shuffled(array)) is None


def test_one_text_takes_no_codes() -> None:
    """A day that is the same in all rows is written once."""
    schema = Schema.of({"day": STRING, "number": INT64})
    rows = 5000
    batch = Batch.of(schema, [pa.array(["2026-03-01"] * rows), pa.array(range(rows))])
    written = encode(batch)
    assert len(written) < 8 * rows + 1024
    assert decode(written, schema).to_rows() == batch.to_rows()


def test_two_texts_with_one_hash_leave_a_column_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Codes say which value it is, so hashes that do not are not trusted."""
    array = column(5, 2000)
    monkeypatch.setattr(kernels, "hash_bytes", lambda offsets, _: np.zeros(len(offsets) - 1, np.uint64))
    assert coding_of(array) is None
    left, right = shuffled(array, 2), shuffled(array, 3)
    assert same(join([left, right]), pa.concat_arrays([array, array]))


def test_dictionaries_from_outside() -> None:
    """One that holds a value twice, a null, or another type is not taken over."""

    def made(values: list[str | None], type_: pa.DataType = STRING) -> pa.Array:
        return pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 0], pa.int8()), pa.array(values, type_))

    assert is_coded(accepted(made(["a", "b"]), STRING))
    for other in (made(["a", "a"]), made(["a", None]), made(["a", "b"], pa.large_string())):
        assert accepted(other, STRING).to_pylist() == other.to_pylist()
        assert not is_coded(accepted(other, STRING))
        assert Batch.of(Schema.of({"a": STRING}), [other]).columns[0].to_pylist() == other.to_pylist()


def test_codes_that_no_value_has_are_refused() -> None:
    """Arrow makes such arrays of a user's buffers without a word."""
    array = with_codes(np.array([0, 7, 1], np.int32), pa.array(["a", "b"]))
    with pytest.raises(DataError, match="does not fit: column=a"):
        Batch.of(Schema.of({"a": STRING}), [array])


def test_values_that_are_gone_do_not_pile_up() -> None:
    """Texts of other days come and go: of the sum no more values are kept than there are rows."""
    schema = Schema.of({"key": INT64, "text": STRING})
    arrangement = Arrangement(schema=schema, key=("key",))
    whole = arrange(Batch.empty(schema), arrangement)
    for day in range(30):
        texts = pa.array([f"day {day} text {number % 10}" for number in range(100)]).dictionary_encode()
        rows = arrange(Batch.of(schema, [pa.array(range(100)), texts]), arrangement)
        assert is_coded(rows.held[1])
        whole = merge_all([whole, rows])
        assert not is_coded(whole.held[1]) or len(whole.held[1].dictionary) <= len(whole)
        if day < 29:
            whole = merge_all([whole, rows.negate()])
    assert whole.to_rows() == rows.to_rows()


def test_dictionaries_that_share_their_offsets_alone() -> None:
    """As Arrow's lower case of them does."""
    left = pa.array(["Ab", "cD"])
    right = pa.Array.from_buffers(STRING, 2, [None, left.buffers()[1], pa.py_buffer(b"abcd")])
    both = [with_codes(np.array([0, 1], np.uint8), values) for values in (left, right)]
    assert not equal_keys(both[0], np.arange(2), both[1], np.arange(2)).any()
    assert join(both).to_pylist() == ["Ab", "cD", "ab", "cd"]


@pytest.mark.parametrize("nulls", [False, True])
def test_what_is_made_of_a_chunk_outlives_its_bytes(nulls: bool) -> None:
    """A chunk lies in a map whose pages are used again when its transaction ends; only slices go with it."""
    schema = Schema.of({"text": STRING, "number": INT64})
    arrangement = Arrangement(schema=schema, key=("number",))
    columns = [column(200, 3000, nulls=nulls), pa.array(np.arange(3000))]
    source = Batch.of(schema, columns, np.arange(3000) % 300 + 1)
    for batch in (source, arrange(source, arrangement)):
        written = encode(batch)
        chunk = decode(memoryview(written), schema, batch.arrangement)
        assert is_coded(chunk.held[0])
        made, expected = (_made(each) for each in (chunk, batch))
        written[:] = b"\xff" * len(written)
        for found, wanted in zip(made, expected, strict=True):
            assert found.to_rows() == wanted.to_rows()


def _made(batch: Batch) -> list[Batch]:
    """All that copies rows."""
    many, few, every = np.arange(0, len(batch), 2), np.arange(50), np.arange(len(batch))
    made = [batch.take(many), batch.take(few), take_all([(batch, many), (batch, few)]), concat([batch, batch])]
    made += [batch.filter(every % 2 == 0), batch.loose().take(every)]
    if batch.arrangement is not None:
        made.append(merge_all([batch, batch.slice(10, len(batch))]))
    return made


def test_texts_that_are_too_many_bytes() -> None:
    """Coded they may be there; plain an array cannot hold them."""
    array = with_codes(np.zeros(1 << 12, np.uint8), pa.array(["x" * (1 << 20)]))
    assert plain_bytes(array) > 1 << 32
    with pytest.raises(CapacityError, match="lower max_step_bytes"):
        plain(array)


@pytest.mark.parametrize(("buffer", "size"), [(3, 1), (3, 999), (3, 1001), (3, 3000), (4, 0), (4, 4), (4, 5), (5, 1)])
def test_codes_that_do_not_fit_are_refused(buffer: int, size: int) -> None:
    """A head whose checksum is right, but whose codes or dictionary have other sizes."""
    schema = Schema.of({"text": STRING})
    encoded = encode(Batch.of(schema, [column(5, 2000)]))
    with pytest.raises(DataError):
        decode(_forged(encoded, 64 + 16 * (buffer - 1) + 8, size), schema, verify=False)


@settings(deadline=None)
@given(st.lists(st.integers(0, 5), max_size=30), st.integers(0, 8))
def test_kernels(codes: list[int], most: int) -> None:
    """Against the same in plain numpy."""
    array = pa.array([TEXTS[code] for code in codes], STRING)
    strings = coded.text_view(array)
    pairs = [
        (
            kernels.number_codes(np.array(codes, np.int64), 6, most),
            reference.number_codes(np.array(codes, np.int64), 6, most),
        ),
        (kernels.number_values(strings, most), reference.number_values(strings, most)),
    ]
    for found, expected in pairs:
        assert (found is None) == (expected is None)
        assert found is None or expected is None or all(map(np.array_equal, found, expected))


@pytest.mark.parametrize("values", [5, PROBED_ROWS // 2, PROBED_ROWS // 2 + 1, 3 * PROBED_ROWS])
def test_many_rows_in_kernels(values: int) -> None:
    """Where the first rows decide."""
    codes = np.tile(np.arange(values), 1 + 2 * PROBED_ROWS // values)
    array = pa.array([f"text {code}" for code in codes.tolist()], STRING)
    strings = coded.text_view(array)
    assert kernels.values_repeat_early(strings) == reference.values_repeat_early(strings)
    found, expected = (module.number_codes(codes, values, len(codes)) for module in (kernels, reference))
    assert (found is None) == (expected is None) == (not kernels.values_repeat_early(strings))
    assert found is None or expected is None or all(map(np.array_equal, found, expected))
