"""Lists: length, elements, membership, order; text split into lists and joined from them. Positions start at 1, as in
SQL.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dbsp.errors import CircuitError
from dbsp.expr.answering import Answering
from dbsp.expr.expression import Expression, Function, Operands, broadcast
from dbsp.expr.logic import ordered
from dbsp.expr.strings import fit_text
from dbsp.expr.types import DECIMAL_DIGITS, adopt, is_decimal, is_float, is_integer, is_number, typed
from dbsp.zset.arrays import Positions
from dbsp.zset.equality import equal_keys
from dbsp.zset.schema import BOOL, FLOAT64, INT64, STRING, is_scalar, list_of


def is_list(type_: pa.DataType | None) -> bool:
    """Return whether the type is a list of any element type."""
    return type_ is not None and bool(pa.types.is_list(type_))


def _fit_list(operands: Operands) -> tuple[Expression, ...]:
    (arg,), (type_,) = operands.args, operands.types
    if not is_list(type_):
        raise operands.refuse("it is for lists: a column of type dbsp.list_of(…), or text after .split(…)")
    return (arg,)


def _fit_position(operands: Operands) -> tuple[Expression, ...]:
    (position,) = operands.options
    if position == 0:
        hint = "write .element(1) for the first, .element(-1) for the last"
        raise CircuitError(f"positions count from 1: position={position}", hint)
    return _fit_list(operands)


def _fit_member(operands: Operands) -> tuple[Expression, ...]:
    fitted = _fit_list(operands)
    (type_,), (value,) = operands.types, operands.options
    if isinstance(value, Answering):
        hint = "it is the same on every row; for one of a column .explode the list and compare, or .map(function, schema={…})"
        raise CircuitError(f"a constant is wanted: value={value!r}", hint)
    if type_ is None or value is None or adopt(value, type_.value_type) is None:
        raise CircuitError(f"no element can be equal to this constant: list={type_} value={value!r}")
    return fitted


def _fit_joined(operands: Operands) -> tuple[Expression, ...]:
    fitted = _fit_list(operands)
    if operands.types[0] != list_of(STRING):
        raise operands.refuse("it joins lists of text")
    return fitted


def _fit_split(operands: Operands) -> tuple[Expression, ...]:
    (separator,) = operands.options
    if not isinstance(separator, str) or not separator:
        raise CircuitError(
            f"the separator must be a constant text, not empty: separator={separator!r}", 'write .split(",")'
        )
    return fit_text(operands)


def _length(values: pa.Array) -> pa.Array:
    return pc.list_value_length(values).cast(INT64)


def _element(values: pa.Array, position: int) -> pa.Array:
    """Return the element at a position, from the end if negative; null where the list is shorter."""
    there = pc.fill_null(pc.greater_equal(pc.list_value_length(values), abs(position)), False)
    ends = values.offsets.cast(INT64)
    at = pc.add(ends[:-1], position - 1) if position > 0 else pc.add(ends[1:], position)
    return values.values.take(pc.if_else(there, at, pa.scalar(None, INT64)))


def _found(values: pa.Array, value: Any) -> tuple[Positions, Positions]:
    """Return the list of each element, and the elements that equal the constant; null elements do not."""
    elements, member = values.flatten(), adopt(value, values.type.value_type)
    wanted = pa.scalar(member.value if member else None, member.dtype)  # type: ignore[union-attr]  # it fits: `_fit_member`
    found = pc.fill_null(ordered(pc.equal, elements, wanted), False)
    return np.asarray(pc.list_parent_indices(values), np.int64), np.flatnonzero(np.asarray(found))


def _contains(values: pa.Array, value: Any) -> pa.Array:
    """Return whether an element equals the constant."""
    owners, found = _found(values, value)
    mask = np.zeros(len(values), np.bool_)
    mask[owners[found]] = True
    return pc.if_else(pc.is_valid(values), pa.array(mask), pa.scalar(None, BOOL))


def _joined(values: pa.Array, separator: str) -> pa.Array:
    """Join the elements that are not null, with the separator between them."""
    elements = values.flatten()
    if elements.null_count:
        kept = pc.is_valid(elements)
        owners = pc.list_parent_indices(values).filter(kept)
        counts = np.bincount(np.asarray(owners), minlength=len(values))
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        mask = values.is_null() if values.null_count else None
        values = pa.ListArray.from_arrays(pa.array(offsets), elements.filter(kept), mask=mask)
    return pc.binary_join(values, separator)


def _fit_plain(operands: Operands) -> tuple[Expression, ...]:
    fitted = _fit_list(operands)
    (type_,) = operands.types
    if type_ is None or not is_scalar(type_.value_type):
        raise operands.refuse("it is for lists of plain values: .explode the list, and aggregate a field")
    return fitted


def _fit_slice(operands: Operands) -> tuple[Expression, ...]:
    first, last = operands.options
    if first < 1 or last < 0:
        raise CircuitError(
            f"positions count from 1: first={first} last={last}", "write .list_slice(1, 3) for the first three"
        )
    return _fit_list(operands)


def _in_order(values: pa.Array) -> tuple[pa.Array, Positions, Positions]:
    """Return all elements, the list of each, and the order that sorts each list, nulls last."""
    elements, owners = values.flatten(), pc.list_parent_indices(values)
    table = pa.table({"owner": owners, "element": elements})
    order = pc.sort_indices(table, sort_keys=[("owner", "ascending"), ("element", "ascending")])
    return elements, np.asarray(owners, np.int64), np.asarray(order, np.int64)


def _sorted(values: pa.Array, descending: bool) -> pa.Array:
    """Sort each list, ascending or descending; nulls last."""
    elements, owners, order = _in_order(values)
    if descending:  # Arrow would put NaN last, where here it is the greatest
        known = np.asarray(elements.is_valid())
        counts = np.bincount(owners[known], minlength=len(values))
        firsts = np.searchsorted(owners, np.arange(len(values)))
        place = np.arange(len(order)) - firsts[owners]
        flipped = firsts[owners] + counts[owners] - 1 - place
        order = order[np.where(place < counts[owners], flipped, np.arange(len(order)))]
    return relisted(elements.take(pa.array(order)), np.bincount(owners, minlength=len(values)), values, values.type)


def _different(values: pa.Array) -> pa.Array:
    """Return every value of a list once, at its first occurrence; null counts as a value."""
    elements, owners, order = _in_order(values)
    again = np.zeros(len(order), np.bool_)
    same = equal_keys(elements, order[1:], elements, order[:-1]) & (owners[order[1:]] == owners[order[:-1]])
    again[order[1:][same]] = True
    counts = np.bincount(owners[~again], minlength=len(values))
    return relisted(elements.filter(pa.array(~again)), counts, values, values.type)


def _position(values: pa.Array, value: Any) -> pa.Array:
    """Return the place of the first element that equals the constant; null if there is none."""
    owners, found = _found(values, value)
    holders, first = np.unique(owners[found], return_index=True)
    places = np.zeros(len(values), np.int64)
    places[holders] = found[first] - np.searchsorted(owners, holders) + 1
    return pa.array(places, mask=places == 0)


def _reversed(values: pa.Array) -> pa.Array:
    """Return the elements from the last to the first."""
    elements, owners = values.flatten(), np.asarray(pc.list_parent_indices(values), np.int64)
    counts = np.bincount(owners, minlength=len(values))
    ends = np.cumsum(counts)
    place = (ends - counts)[owners] + ends[owners] - 1 - np.arange(len(owners))
    return relisted(elements.take(pa.array(place)), counts, values, values.type)


def _extreme(greatest: bool) -> Callable[[pa.Array], pa.Array]:
    """Return the function that gives the least or the greatest element that is not null."""

    def compute(values: pa.Array) -> pa.Array:
        elements, owners, order = _in_order(values)
        known = np.bincount(owners[np.asarray(elements.is_valid())], minlength=len(values))
        firsts = np.searchsorted(owners, np.arange(len(values)))
        places = np.where(known > 0, firsts + (known - 1) * greatest, 0)
        chosen = order[places] if len(order) else places
        return elements.take(pa.array(chosen, INT64, mask=known == 0))

    return compute


def _fit_numbers(operands: Operands) -> tuple[Expression, ...]:
    fitted = _fit_list(operands)
    (type_,) = operands.types
    if type_ is None or not is_number(type_.value_type):
        raise operands.refuse("it is for lists of numbers: .explode the list, and sum a number of each element")
    return fitted


def _sum_type(type_: pa.DataType) -> pa.DataType:
    element = type_.value_type
    if is_decimal(element):
        return pa.decimal128(DECIMAL_DIGITS, element.scale)
    return FLOAT64 if is_float(element) else INT64


def _summed(values: pa.Array) -> pa.Array:
    """Return the sum of each list's elements that are not null, or null if there are none; a sum of floats is rounded once."""
    type_ = _sum_type(values.type)
    if is_integer(values.type.value_type):
        return _summed_whole(values)
    total = _decimal_sum if is_decimal(type_) else _float_sum
    found = ([each for each in row or () if each is not None] for row in values.to_pylist())
    return pa.array([total(row) if row else None for row in found], type_)


def _summed_whole(values: pa.Array) -> pa.Array:
    """Return the sums of whole numbers, in two halves, so that a sum that does not fit is noticed."""
    elements, owners = values.flatten(), np.asarray(pc.list_parent_indices(values), np.int64)
    known = np.asarray(elements.is_valid())
    numbers, owners = np.asarray(pc.fill_null(elements, 0))[known], owners[known]
    high, low = np.zeros(len(values), np.int64), np.zeros(len(values), np.int64)
    np.add.at(high, owners, (numbers >> 32).astype(np.int64))
    np.add.at(low, owners, (numbers & 0xFFFFFFFF).astype(np.int64))
    high += low >> 32
    if ((high < -(1 << 31)) | (high >= 1 << 31)).any():
        raise pa.ArrowInvalid("the sum of a list does not fit 64 bits")
    return pa.array((high << 32) | (low & 0xFFFFFFFF), mask=np.bincount(owners, minlength=len(values)) == 0)


def _decimal_sum(row: list[Decimal]) -> Decimal:
    scale = -int(row[0].as_tuple().exponent)
    digits = str(sum(int(each.scaleb(scale)) for each in row))
    return Decimal(digits).scaleb(-scale)


def _float_sum(row: list[float]) -> float:
    if not all(map(math.isfinite, row)):
        return sum(each for each in row if not math.isfinite(each))
    try:
        return math.fsum(row)
    except OverflowError:
        halved = math.fsum(math.ldexp(each, -64) for each in row)
        return math.copysign(math.inf, halved) if abs(halved) >= 2.0**960 else math.ldexp(halved, 64)


def _fit_lists(operands: Operands) -> tuple[Expression, ...]:
    known = {type_ for type_ in operands.types if type_ is not None}
    if len(known) != 1 or not is_list(*known):
        raise operands.refuse(
            "it joins lists of one type; one value is joined by .list_concat(dbsp.lit([x], the type))"
        )
    (type_,) = known
    return typed(operands, type_)


def _concatenated(*data: Any) -> pa.Array:
    """Return the elements of all lists of a row; a null list counts as empty."""
    rows = max(len(datum) for datum in data if not isinstance(datum, pa.Scalar))
    lists = [broadcast(datum, rows) for datum in data]
    owners = np.concatenate([np.asarray(pc.list_parent_indices(each), np.int64) for each in lists])
    elements = pa.concat_arrays([each.flatten() for each in lists])
    order = np.argsort(owners, kind="stable")
    offsets = np.concatenate([[0], np.cumsum(np.bincount(owners, minlength=rows))]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), elements.take(pa.array(order)), type=lists[0].type)


def relisted(elements: pa.Array, counts: Positions, values: pa.Array, type_: pa.DataType) -> pa.Array:
    """Build lists of so many elements each, of this type; null where the original lists are."""
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    mask = values.is_null() if values.null_count else None
    return pa.ListArray.from_arrays(pa.array(offsets), elements, type=type_, mask=mask)


LIST_LENGTH = Function(
    name="list_length", fit=_fit_list, result=lambda *_: INT64, compute=_length, text="{0}.list_length()"
)
ELEMENT = Function(
    name="element",
    fit=_fit_position,
    result=lambda type_, _: type_.value_type,
    compute=_element,
    nulls="always",
    text="{0}.element({1})",
)
LIST_CONTAINS = Function(
    name="list_contains",
    fit=_fit_member,
    result=lambda *_: BOOL,
    compute=_contains,
    text="{0}.list_contains({1})",
)
LIST_JOIN = Function(
    name="list_join", fit=_fit_joined, result=lambda *_: STRING, compute=_joined, text="{0}.list_join({1})"
)
LIST_SORT = Function(
    name="list_sort", fit=_fit_plain, result=lambda type_, _: type_, compute=_sorted, text="{0}.list_sort({1})"
)
LIST_DISTINCT = Function(
    name="list_distinct", fit=_fit_plain, result=lambda type_: type_, compute=_different, text="{0}.list_distinct()"
)
LIST_SLICE = Function(
    name="list_slice",
    fit=_fit_slice,
    result=lambda type_, *_: type_,
    compute=lambda values, first, last: pc.list_slice(values, first - 1, max(last, first - 1)),
    text="{0}.list_slice({1}, {2})",
)
LIST_POSITION = Function(
    name="list_position",
    fit=_fit_member,
    result=lambda *_: INT64,
    compute=_position,
    nulls="always",
    text="{0}.list_position({1})",
)
LIST_REVERSE = Function(
    name="list_reverse", fit=_fit_list, result=lambda type_: type_, compute=_reversed, text="{0}.list_reverse()"
)
LIST_MIN, LIST_MAX = (
    Function(
        name=name,
        fit=_fit_plain,
        result=lambda type_: type_.value_type,
        compute=_extreme(name == "list_max"),
        nulls="always",
        text=f"{{0}}.{name}()",
    )
    for name in ("list_min", "list_max")
)
LIST_SUM = Function(
    name="list_sum", fit=_fit_numbers, result=_sum_type, compute=_summed, nulls="always", text="{0}.list_sum()"
)
LIST_CONCAT = Function(
    name="list_concat", fit=_fit_lists, result=lambda type_, *_: type_, compute=_concatenated, nulls="never"
)
SPLIT = Function(
    name="split", fit=_fit_split, result=lambda *_: list_of(STRING), compute=pc.split_pattern, text="{0}.split({1})"
)

FUNCTIONS = (
    *(LIST_LENGTH, ELEMENT, LIST_CONTAINS, LIST_JOIN, LIST_SORT, LIST_DISTINCT, LIST_SLICE, SPLIT),
    *(LIST_POSITION, LIST_REVERSE, LIST_MIN, LIST_MAX, LIST_SUM, LIST_CONCAT),
)
