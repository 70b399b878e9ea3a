"""Numbers at the ends of their types, and sums over many rows."""

from __future__ import annotations

import math
import struct
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbsp.errors import CapacityError
from dbsp.operators.groups.limbs import fits_decimal, joined, limbs_of, split
from dbsp.zset.kernels import floats
from tests.operators.histories import quick


def bins(values: list[float], weights: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """The (bin, sum) rows of one group."""
    n = len(values)
    group, of, sums = np.empty(4 * n + 1, np.int64), np.empty(4 * n + 1, np.int16), np.empty((4 * n + 1, 1), np.int64)
    bits = np.array(values, np.float64).view(np.int64).reshape(1, n)
    count = floats.sum_bins(
        bits,
        np.ones((1, n), np.bool_),
        np.array(weights, np.int64),
        np.arange(n),
        np.zeros(1, np.int64),
        group,
        of,
        sums,
    )
    if count < 0:
        raise CapacityError("overflow")
    return of[:count].copy(), sums[:count, 0].copy()


def rounded(of: np.ndarray, sums: np.ndarray, *, mean: bool = False) -> tuple[float, int]:
    total, count = np.empty(1), np.empty(1, np.int64)
    assert floats.round_bins(np.arange(len(of)), np.array([0, len(of)]), of, sums, mean, total, count)
    return float(total[0]), int(count[0])


any_float = (
    st.integers(0, 2**64 - 1).map(lambda bits: struct.unpack("d", struct.pack("Q", bits))[0]).filter(math.isfinite)
)


some_floats = st.one_of(any_float, st.floats(-1, 1), st.sampled_from([5e-324, 1.5e-323, 2.0**53, -1.0, 1e308]))


@quick
@given(st.lists(st.tuples(some_floats, st.sampled_from([1, 2, 3, 1000, 10**8, -1])), min_size=1, max_size=8))
def test_means_are_rounded_once(values: list[tuple[float, int]]) -> None:
    found, count = rounded(*bins([value for value, _ in values], [weight for _, weight in values]), mean=True)
    assert count == sum(weight for _, weight in values)
    if count:
        exact = sum(Fraction(value) * weight for value, weight in values) / count
        try:
            expected = float(exact)
        except OverflowError:
            expected = math.copysign(math.inf, exact)
        assert found == expected


@pytest.mark.parametrize(("count", "fits"), [((1 << 47) - 1, True), (1 << 47, False), (-(1 << 47), False)])
def test_a_mean_of_more_values_than_can_be_divided_by_is_refused(count: int, fits: bool) -> None:
    of, sums, total, found = np.array([-1], np.int16), np.array([count]), np.empty(1), np.empty(1, np.int64)
    assert floats.round_bins(np.arange(1), np.array([0, 1]), of, sums, True, total, found) is fits
    assert floats.round_bins(np.arange(1), np.array([0, 1]), of, sums, False, total, found)


@quick
@given(
    st.lists(st.one_of(any_float, st.floats(-1, 1), st.sampled_from([5e-324, 2.0**53, -1.0])), min_size=1, max_size=20)
)
def test_bins_round_like_fsum(values: list[float]) -> None:
    try:
        expected = math.fsum(values)
    except OverflowError:
        return
    total, count = rounded(*bins(values, [1] * len(values)))
    assert struct.pack("d", total) == struct.pack("d", expected + 0.0)
    assert count == len(values)


@quick
@given(st.lists(any_float, min_size=1, max_size=10), st.lists(any_float, min_size=1, max_size=10))
def test_bins_are_linear_and_forget(kept: list[float], gone: list[float]) -> None:
    whole = bins(kept + gone + gone, [1] * len(kept) + [1] * len(gone) + [-1] * len(gone))
    assert [part.tolist() for part in whole] == [part.tolist() for part in bins(kept, [1] * len(kept))]


def test_a_weight_that_bins_cannot_hold_is_refused() -> None:
    with pytest.raises(CapacityError):
        bins([1.0], [2**29])
    assert rounded(*bins([0.5], [2**29 - 1]))[0] == 0.5 * (2**29 - 1)


def test_totals_beyond_the_range_are_infinite() -> None:
    assert rounded(*bins([1e308, 1e308], [1, 1]))[0] == math.inf
    assert rounded(*bins([-1e308, -1e308], [1, 1]))[0] == -math.inf
    assert rounded(*bins([1e308, 1e308, -1e308], [1, 1, 1]))[0] == 1e308


@pytest.mark.parametrize("type_", [pa.int8(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64()])
def test_limbs_of_integers_at_the_ends(type_: pa.DataType) -> None:
    width, signed = type_.bit_width, pa.types.is_signed_integer(type_)
    numbers = [-(2 ** (width - 1)), 2 ** (width - 1) - 1, -1] if signed else [2**width - 1, 0]
    limbs = np.column_stack(split(pa.array(numbers, type_)))
    assert limbs.shape[1] == limbs_of(type_)
    low, high, fits = joined(limbs)
    assert fits.all()
    assert [(int(h) << 64) + int(l_) for h, l_ in zip(high, low, strict=True)] == numbers


def test_decimals_of_more_than_38_digits_do_not_fit() -> None:
    most = 10**38 - 1
    for number, fits in ((most, True), (-most, True), (most + 1, False), (-most - 1, False), (0, True)):
        high, low = divmod(number, 2**64)
        assert fits_decimal(np.array([low], np.uint64), np.array([high], np.int64)).tolist() == [fits]


def test_a_sum_of_too_many_rows_is_refused() -> None:
    with pytest.raises(CapacityError, match="too many rows"):
        joined(np.array([[2**62, 0]]))
