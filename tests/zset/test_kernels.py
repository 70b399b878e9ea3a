"""Every kernel against its plain numpy twin, and what the twins cannot say."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dbsp.errors import CapacityError
from dbsp.zset import kernels
from dbsp.zset.arrays import bytes_view
from dbsp.zset.kernels.compile import kernels as all_kernels
from dbsp.zset.kernels.groups import PROBED_ROWS
from tests.pace import examples, some
from tests.zset import numpy_twins

QUICK = settings(max_examples=examples(80), deadline=None)
words = st.integers(0, 2**64 - 1) | st.integers(0, 3) | st.integers(2**64 - 4, 2**64 - 1)


def word_arrays(size: int | None = None) -> st.SearchStrategy[Any]:
    """Arrays of words with many repeats, of this size or of any."""
    return hnp.arrays(np.uint64, st.integers(0, 60) if size is None else size, elements=words)


def flat(result: Any) -> list[Any]:
    """The arrays of a result."""
    return [each for part in result for each in flat(part)] if isinstance(result, tuple) else [result]


def agree(name: str, *arguments: Any) -> None:
    """Kernel and twin return the same."""
    ours, theirs = getattr(kernels, name)(*arguments), getattr(numpy_twins, name)(*arguments)
    for a, b in zip(flat(ours), flat(theirs), strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a, b)


def test_every_kernel_has_a_twin() -> None:
    """Same names, same arguments."""
    public = {n for n, f in vars(kernels).items() if inspect.isfunction(f) and f.__module__ == kernels.__name__}
    public -= {"_exact", "_cut", "_addresses"}
    for name in public:
        ours, theirs = inspect.signature(getattr(kernels, name)), inspect.signature(getattr(numpy_twins, name))
        assert list(ours.parameters) == list(theirs.parameters), name


@QUICK
@given(a=word_arrays(), data=st.data())
def test_hashes(a: Any, data: st.DataObject) -> None:
    """Words, pairs, combinations."""
    agree("hash_words", a)
    b = data.draw(word_arrays(len(a)))
    agree("combine_hashes", a, b)
    agree("hash_word_pairs", np.stack([a, b], axis=1))


@QUICK
@given(data=st.data(), groups=st.integers(0, 12))
def test_what_went_and_came_lies_by_group(data: st.DataObject, groups: int) -> None:
    """In order of the rows' hashes within a group."""
    old, new = (data.draw(hnp.arrays(np.uint64, groups, elements=st.integers(0, 3))) for _ in range(2))
    went, came = (data.draw(hnp.arrays(np.bool_, groups)) for _ in range(2))
    *ours, clear = kernels.interleave(old, new, went, came)
    *theirs, settled = numpy_twins.interleave(old, new, went, came)
    assert clear == settled
    for a, b in zip(ours, theirs, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


@QUICK
@given(strings=st.lists(st.binary(max_size=40), max_size=20), skip=st.integers(0, 3))
def test_byte_strings(strings: list[bytes], skip: int) -> None:
    """Hash, order and equality of slices of byte strings."""
    view = bytes_view(pa.array(strings, pa.binary()).slice(skip))
    agree("hash_bytes", *view)
    agree("leading_words", *view)
    rows = np.arange(len(view[0]) - 1)
    agree("equal_bytes", view, rows, view, rows[::-1].copy())


@QUICK
@given(
    strings=st.lists(st.text("ab", max_size=9), max_size=12),
    separator=st.text("ab", min_size=1, max_size=3),
    number=st.integers(1, 5) | st.just(2**31),
    skip=st.integers(0, 2),
)
def test_parts_between_separators(strings: list[str], separator: str, number: int, skip: int) -> None:
    """Separators that overlap, that begin like others, at both ends, and no parts at all."""
    agree("split_parts", bytes_view(pa.array(strings, pa.binary()).slice(skip)), separator.encode(), number)


@QUICK
@given(data=st.data(), text=st.binary(max_size=20), rows=st.integers(1, 12), skip=st.integers(0, 2))
def test_one_byte_string_again_and_again(data: st.DataObject, text: bytes, rows: int, skip: int) -> None:
    """Hashed and compared once; not if one letter differs, nor if the same letters are cut elsewhere."""
    alike = [text] * (skip + rows)
    at, turn = data.draw(st.integers(skip, skip + rows - 1)), data.draw(st.integers(0, max(0, len(text) - 1)))
    other = [*alike[:at], text[:turn] + b"?" + text[turn + 1 :], *alike[at + 1 :]]
    cuts = np.sort(data.draw(hnp.arrays(np.int64, rows, elements=st.integers(0, 30))))
    same_letters = [b"a" * int(size) for size in np.diff(cuts, prepend=0)]
    for strings in (alike, other, [b""] * skip + same_letters):
        view = bytes_view(pa.array(strings, pa.binary()).slice(skip))
        agree("hash_bytes", *view)
        agree("equal_bytes", view, np.arange(rows), view, np.arange(rows)[::-1].copy())
        agree("equal_bytes", view, np.arange(rows), bytes_view(pa.array(alike[skip:], pa.binary())), np.arange(rows))
        assert kernels.bytes_repeat(view) == numpy_twins.bytes_repeat(view)


def spread_keys(rng: np.random.Generator, n: int) -> dict[str, Any]:
    """Large inputs of every shape."""
    even = rng.integers(0, 2**64 - 1, n, np.uint64)
    return {
        "even": even,
        "one value": np.full(n, 7, np.uint64),
        "few values": even[rng.integers(0, 5, n)],
        "one crowded": np.where(rng.random(n) < 0.5, np.uint64(1 << 60), even),
        "narrow": even >> np.uint64(50),
        "sorted": np.sort(even),
        "reversed": np.sort(even)[::-1].copy(),
        "two ends": np.where(rng.random(n) < 0.5, np.uint64(0), np.uint64(2**64 - 1)),
        "geometric": even >> rng.integers(0, 64, n).astype(np.uint64),
    }


@QUICK
@given(words=word_arrays(20), most=st.booleans())
def test_ends_as_halves(words: Any, most: bool) -> None:
    """Numbers beside weights, and how the ends of old rows move; some rows are not there before, or did not change."""
    numbers = words.view(np.int64)
    rows = np.arange(20, dtype=np.int64) % 3
    agree("with_halves", rows.reshape(-1, 1), [numbers, numbers[::-1].copy()])
    old, change = (
        numpy_twins.with_halves(there.reshape(-1, 1), [each, each[::-1].copy()])
        for there, each in ((rows, numbers), (rows[::-1].copy(), np.roll(numbers, 1)))
    )
    agree("moves_of_ends", old, change, [1, 3], [most, not most])


@QUICK
@given(words=word_arrays(), times=st.integers(1, 5), swap=st.booleans())
def test_groups(words: Any, times: int, swap: bool) -> None:
    """Keys that come again, neighbours or not, and keys that do not."""
    rows = np.repeat(words, times) if swap else np.tile(words, times)
    agree("number_groups", rows)
    group = np.unique(words, return_inverse=True)[1].astype(np.int64)
    agree("least_of_groups", words[::-1].copy(), group, len(words))
    agree("most_of_groups", words[::-1].copy(), group, len(words))
    agree("ends_of_groups", words[::-1].copy(), group // 3, len(words))


@QUICK
@given(data=st.data(), strings=st.lists(st.binary(max_size=20), min_size=1, max_size=4), odd=st.booleans())
def test_rows_of_a_group_are_compared_with_its_first(data: st.DataObject, strings: list[bytes], odd: bool) -> None:
    """Groups whose rows are all alike, and one row that may not be: texts and words."""
    of = data.draw(st.lists(st.integers(0, len(strings) - 1), min_size=1, max_size=20))
    firsts, group = np.unique(of, return_index=True, return_inverse=True)[1:]
    order = np.argsort(firsts)
    group, firsts = np.argsort(order)[group].astype(np.int64), firsts[order].astype(np.int64)
    rows = [strings[each] for each in of]
    if odd:
        rows[data.draw(st.integers(0, len(rows) - 1))] += b"x"
    texts, words = bytes_view(pa.array(rows, pa.binary())), np.array([len(row) for row in rows], np.uint64)
    assert kernels.bytes_by_group(texts, group, firsts) == numpy_twins.bytes_by_group(texts, group, firsts)
    assert kernels.words_by_group(words, group, firsts) == numpy_twins.words_by_group(words, group, firsts)


@QUICK
@given(data=st.data(), groups=st.integers(1, 4))
def test_what_rows_add_to_their_groups(data: st.DataObject, groups: int) -> None:
    """Values, weights of marked rows, halves of values of any size."""
    group = data.draw(hnp.arrays(np.int64, st.integers(0, 20), elements=st.integers(0, groups - 1)))
    small = hnp.arrays(np.int64, len(group), elements=st.integers(-5, 5))
    weight = data.draw(small)
    marks = data.draw(st.lists(st.none() | hnp.arrays(np.bool_, len(group)), min_size=1, max_size=18))
    values = data.draw(hnp.arrays(np.int64, len(group)))
    agree("add_by_group", weight, group, groups)
    agree("add_marked", marks, weight, group, groups)
    agree("add_halves", values, weight, group, groups)


def test_sums_of_groups_are_never_wrapped() -> None:
    """Nor are halves of values, whose weights have 31 bits."""
    rows, twice, most = np.zeros(2, np.int64), np.ones(2, np.int64), np.array([2**63 - 1, 1])
    for module in (kernels, numpy_twins):
        with pytest.raises(CapacityError, match="weight overflow"):
            module.add_by_group(most, rows, 1)
        with pytest.raises(CapacityError, match="weight overflow"):
            module.add_marked([twice < 0, twice > 0], most, rows, 1)
    for weight in (1 << 30, -(1 << 30) - 1):
        with pytest.raises(CapacityError, match="weight overflow"):
            kernels.add_halves(rows, twice * weight, rows, 1)


@pytest.mark.parametrize("keys", [5, 1000, PROBED_ROWS // 2, PROBED_ROWS // 2 + 1, 30_000])
@pytest.mark.parametrize("shape", spread_keys(np.random.default_rng(0), 10))
def test_many_groups(keys: int, shape: str) -> None:
    """Few keys and too many, words of any shape, keys that come late; the table is as large as it may be."""
    words = spread_keys(np.random.default_rng(keys), keys)[shape]
    for rows in (np.tile(words, 5), np.concatenate([np.repeat(words[:500], 20), words])):
        agree("number_groups", rows)
        agree("sort_words", rows, None, rows[::-1].copy())
        found = numpy_twins.number_groups(rows)
        if found is not None:
            agree("sort_groups", rows, *found)


@QUICK
@given(data=st.data(), kinds=st.sampled_from(["k", "ko", "kr", "kor"]))
def test_sorting(data: st.DataObject, kinds: str) -> None:
    """All combinations of words."""
    key = data.draw(word_arrays())
    code = data.draw(word_arrays(len(key))) if "o" in kinds else None
    row = data.draw(word_arrays(len(key))) if "r" in kinds else None
    agree("argsort_hash", key)
    agree("sort_hash", key)
    agree("argsort3", key, code, row)
    agree("sort_words", key, code, row)
    agree("sort_within", *numpy_twins.sort_hash(key), code, row)
    agree("run_flags", *numpy_twins.sort_words(key, code, row)[:3])
    agree("run_starts", *numpy_twins.sort_words(key, code, row)[:3])


@pytest.mark.parametrize("n", [25, 1000, 20_000, 200_000])
@pytest.mark.parametrize("shape", some(list(spread_keys(np.random.default_rng(0), 10)), 2))
def test_large_inputs(n: int, shape: str) -> None:
    """Blocks, crowded buckets, merges and searches of many rows."""
    rng = np.random.default_rng(n)
    keys = spread_keys(rng, n)[shape]
    agree("argsort_hash", keys)
    agree("argsort3", keys, None, keys[::-1].copy())
    agree("argsort3", keys, keys >> np.uint64(60), spread_keys(rng, n)["few values"])
    left, right = np.sort(keys), np.sort(spread_keys(rng, n)["few values"])
    ones = np.ones((n, 1), np.int64)
    agree("merge_sums", (left, None, None), ones, (right, None, None), ones)
    for queries in (right, left[::3].copy(), np.sort(spread_keys(rng, 500)["even"])):
        agree("lower_bounds", queries, left)
        agree("equal_ranges", queries, left)


@QUICK
@given(data=st.data(), kinds=st.sampled_from(["k", "kr", "kor", "ko"]), width=st.sampled_from([1, 1, 3]))
def test_merging_and_adding_up(data: st.DataObject, kinds: str, width: int) -> None:
    """Rows of equal words are added up, one of each side; those that come to nothing are gone."""
    few = st.integers(0, 2) | st.just(2**64 - 1)
    weight = st.sampled_from([1, -1, 2, -2, 2**63 - 1, -(2**63)])
    sides: list[Any] = []
    for _ in range(2):
        n = data.draw(st.integers(0, 40))
        key, code, row = (data.draw(hnp.arrays(np.uint64, n, elements=few)) for _ in range(3))
        words = numpy_twins.sort_words(key, code if "o" in kinds else None, row if "r" in kinds else None)[:3]
        sides += [words, data.draw(hnp.arrays(np.int64, (n, width), elements=weight))]
    agree("merge_sums", *sides)


@QUICK
@given(data=st.data(), columns=st.lists(st.lists(st.binary(max_size=9), max_size=12), min_size=1, max_size=4))
@pytest.mark.parametrize("skip", range(4))
def test_picking(data: st.DataObject, columns: list[list[bytes]], skip: int) -> None:
    """Rows of several columns in any order of the columns, some left out; columns may begin within others."""
    turns = data.draw(st.permutations([n for n, column in enumerate(columns) for _ in column]))
    each = [iter(range(len(column))) for column in columns]
    places = [(turn, next(each[turn])) for turn in turns]
    rows = np.array([(turn << kernels.RUN_SHIFT) + at for turn, at in places if at % 4 != skip], np.int64)
    agree("pick_bytes", [bytes_view(pa.array([b"before", *column, b"behind"])[1:-1]) for column in columns], rows)
    agree("pick_words", [np.arange(len(column), dtype=np.uint64) ** 3 for column in columns], rows)
    agree("pick_rows", [np.arange(2 * len(column)).reshape(-1, 2) for column in columns], rows)
    whole = [string for column in columns for string in column]
    view = bytes_view(pa.array([b"before", *whole, b"behind"])[1:-1])
    order = np.array(data.draw(st.permutations(range(len(whole)))), np.int64)
    for chosen in (np.repeat(order, 2), order, np.sort(order)):
        agree("take_stretches", view, chosen)


@QUICK
@given(hay=word_arrays(), queries=word_arrays())
def test_finding(hay: Any, queries: Any) -> None:
    """Sorted and unsorted queries, and the ranges spread out."""
    hay = np.sort(hay)
    for asked in (queries, np.sort(queries), hay):
        agree("lower_bounds", asked, hay)
        agree("equal_ranges", asked, hay)
        agree("expand_ranges", *numpy_twins.equal_ranges(asked, hay))


@QUICK
@given(dest=hnp.arrays(np.uint32, st.integers(0, 50), elements=st.integers(0, 4)))
def test_partition(dest: Any) -> None:
    """Stable, with the bounds of all destinations."""
    agree("partition_by", dest, 5)


weights = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([0, 1, -1, 2**63 - 1, -(2**63)])


@QUICK
@given(data=st.data(), width=st.integers(1, 3))
def test_sums(data: st.DataObject, width: int) -> None:
    """Sums are exact, or the overflow is reported; the order of the terms does not matter."""
    n = data.draw(st.integers(1, 12))
    w = data.draw(hnp.arrays(np.int64, (n, width), elements=weights))
    starts = np.unique(data.draw(hnp.arrays(np.int64, 3, elements=st.integers(0, n - 1))))
    starts[0] = 0
    order = np.array(data.draw(st.permutations(range(n))))
    exact = [
        [sum(map(int, w[lo:hi, c])) for c in range(width)] for lo, hi in zip(starts, [*starts[1:], n], strict=True)
    ]
    agree("nonzero_rows", w * (w > 0))
    flags = np.zeros(n, np.uint8)
    flags[starts] = 1
    if all(-(2**63) <= total < 2**63 for row in exact for total in row):
        assert kernels.sum_runs(w, starts).tolist() == exact
        agree("sum_runs", w, starts)
        agree("reduce_runs", w[np.argsort(order)], order, flags)
        assert kernels.sum_runs(w[np.argsort(order)], starts, order).tolist() == exact
    else:
        for module in (kernels, numpy_twins):
            with pytest.raises(CapacityError, match="weight overflow"):
                module.sum_runs(w, starts)
            with pytest.raises(CapacityError, match="weight overflow"):
                module.reduce_runs(w, np.arange(n), flags)


@QUICK
@given(data=st.data())
def test_scatter_add(data: st.DataObject) -> None:
    """Repeated positions add up."""
    rows = data.draw(hnp.arrays(np.int64, st.integers(0, 20), elements=st.integers(0, 3)))
    w = data.draw(hnp.arrays(np.int64, (len(rows), 2), elements=st.integers(-5, 5)))
    ours, theirs = np.zeros((4, 2), np.int64), np.zeros((4, 2), np.int64)
    kernels.scatter_add(ours, rows, w)
    numpy_twins.scatter_add(theirs, rows, w)
    np.testing.assert_array_equal(ours, theirs)


def test_scatter_add_reports_overflow() -> None:
    """The sum is never wrapped."""
    out = np.array([[2**63 - 1]])
    for module in (kernels, numpy_twins):
        with pytest.raises(CapacityError, match="weight overflow"):
            module.scatter_add(out.copy(), np.array([0]), np.array([[1]]))


def test_read_only_arrays_need_no_other_code() -> None:
    """A kernel has one signature for arrays from a memory map and from numpy."""
    frozen = np.arange(5, dtype=np.uint64)
    frozen.flags.writeable = False
    assert kernels.lower_bounds(frozen, frozen).tolist() == [0, 1, 2, 3, 4]
    assert all(len(each.compile().signatures) == 1 for each in all_kernels())


def test_importing_compiles_nothing(tmp_path: Any) -> None:
    """With an empty cache folder an import writes no code."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    program = "import dbsp.zset.batch, dbsp.zset.encoding"
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, timeout=60)
    assert list(tmp_path.rglob("*.nb*")) == []


def test_cache_folder_falls_back(tmp_path: Any) -> None:
    """Where the user's cache folder cannot be made, a private temporary one is used."""
    blocked = tmp_path / "blocked"
    blocked.write_text("a file, not a folder")
    environment = {k: v for k, v in os.environ.items() if k != "NUMBA_CACHE_DIR"}
    environment |= {"XDG_CACHE_HOME": str(blocked), "TMPDIR": str(tmp_path)}
    program = "from dbsp.zset.kernels.kernel import code_folder; print(code_folder())"
    done = subprocess.run([sys.executable, "-c", program], env=environment, check=True, capture_output=True, text=True)
    assert done.stdout.startswith(str(tmp_path / "dbsp-numba-"))
