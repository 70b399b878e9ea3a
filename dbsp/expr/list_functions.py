"""Lists: length, elements, membership; text split into a list and joined from one. Positions start at 1, as in SQL."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dbsp.errors import CircuitError
from dbsp.expr.answering import Answering
from dbsp.expr.expression import Expression, Function, Literal, Operands
from dbsp.expr.strings import fit_text
from dbsp.expr.types import adopt
from dbsp.zset.schema import BOOL, INT64, STRING, list_of


def is_list(type_: pa.DataType | None) -> bool:
    """Whether it is a list of anything."""
    return type_ is not None and bool(pa.types.is_list(type_))


def _fit_list(operands: Operands) -> tuple[Expression, ...]:
    (arg,), (type_,) = operands.args, operands.types
    if isinstance(arg, Literal) or not is_list(type_):
        raise operands.refuse("it is for lists: a column of type dbsp.list_of(…), or text after .split(…)")
    return (arg,)


def _fit_position(operands: Operands) -> tuple[Expression, ...]:
    (position,) = operands.options
    if position < 1:
        raise CircuitError(f"positions count from 1: position={position}", "write .element(1) for the first")
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
        raise CircuitError(f"the separator is a constant text: separator={separator!r}", 'write .split(",")')
    return fit_text(operands)


def _length(values: pa.Array) -> pa.Array:
    return pc.list_value_length(values).cast(INT64)


def _element(values: pa.Array, position: int) -> pa.Array:
    """The element at a position; null where the list is shorter."""
    there = pc.fill_null(pc.greater_equal(pc.list_value_length(values), position), False)
    first = pc.add(values.offsets.cast(INT64).slice(0, len(values)), position - 1)
    return values.values.take(pc.if_else(there, first, pa.scalar(None, INT64)))


def _contains(values: pa.Array, value: Any) -> pa.Array:
    """Whether an element equals the constant; null elements do not."""
    member = adopt(value, values.type.value_type)
    found = pc.fill_null(pc.equal(values.flatten(), pa.scalar(member.value if member else None, member.dtype)), False)  # type: ignore[union-attr]
    owners = pc.list_parent_indices(values).filter(found)
    mask = np.zeros(len(values), np.bool_)
    mask[np.asarray(owners)] = True
    return pc.if_else(pc.is_valid(values), pa.array(mask), pa.scalar(None, BOOL))


def _joined(values: pa.Array, separator: str) -> pa.Array:
    """The elements that are not null, with the separator between them."""
    elements = values.flatten()
    if elements.null_count:
        kept = pc.is_valid(elements)
        owners = pc.list_parent_indices(values).filter(kept)
        counts = np.bincount(np.asarray(owners), minlength=len(values))
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        mask = values.is_null() if values.null_count else None
        values = pa.ListArray.from_arrays(pa.array(offsets), elements.filter(kept), mask=mask)
    return pc.binary_join(values, separator)


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
SPLIT = Function(
    name="split", fit=_fit_split, result=lambda *_: list_of(STRING), compute=pc.split_pattern, text="{0}.split({1})"
)

FUNCTIONS = (LIST_LENGTH, ELEMENT, LIST_CONTAINS, LIST_JOIN, SPLIT)
