"""Check that Arrow converted Python values to a column exactly, without truncating or guessing values.

Arrow's cast refuses a lossy change, but its conversion of Python values does not. The number 2.9 becomes the integer 2,
a datetime in a date loses its time, and 1e300 becomes an infinite float of 32 bits. A text becomes a list of its
letters, and a number a time in an unnamed unit. A decimal of more than 38 places may become any number.

1. A column is checked as a whole: first for the Python types in it, and value by value only for types that could lose something.
2. Whether a value is refused depends only on this value, never on other values of its column.
"""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, compress, repeat
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dbsp.zset.schema import DATE, DURATION, FLOAT32, TIME, is_list, is_struct

Values = Sequence[Any]

_NOTHING = type(None)
_WHOLE = frozenset({int, _NOTHING, *(np.dtype(code).type for code in "bhilqBHILQ")})
"""Python types whose values need no check: an integer column holds them unchanged, or Arrow refuses them."""
_TEXTS = (str, bytes, bytearray, memoryview)
"""Python types that Arrow would convert to a list of their elements, although they are texts or bytes."""
_WIDE = decimal.Context(prec=76, traps=[])
"""Decimal context that represents every decimal of a column, whatever the program's own context; other values become NaN."""


def check_exact(values: Values, made: pa.Array) -> None:
    """Refuse a column that does not hold exactly these values.

    **Shape** `made` is the column that Arrow made of the values, in order.

    **Cost** One pass for the types of the values; more if some of them could lose something.

    **Errors** `ArrowInvalid` shows a value; Python's own errors where a value cannot be compared.

    **Example**

    >>> check_exact([2, 3.0, None], pa.array([2, 3.0, None], pa.int64()))
    >>> check_exact([2, 2.9, None], pa.array([2, 2.9, None], pa.int64()))
    Traceback (most recent call last):
    ...
    pyarrow.lib.ArrowInvalid: 2.9 is not a value of this type
    """
    type_ = made.type
    check = _check_of(type_)
    if check is None or (check is _floats and not pc.any(pc.is_inf(made)).as_py()):
        return
    kinds = set(map(type, values))
    if any(issubclass(kind, pa.Scalar) for kind in kinds):
        values = [value.as_py() if isinstance(value, pa.Scalar) else value for value in values]
        kinds = set(map(type, values))
    check(values, kinds, made)


def refuse_others(names: Iterable[Any], known: Iterable[str]) -> None:
    """Refuse a struct's field that is not among the known ones."""
    others = [name for name in names if name not in set(known)]
    if others:
        raise pa.ArrowInvalid(f"no such field: field={others[0]} fields={list(known)}")


def _check_of(type_: pa.DataType) -> Callable[[Values, set[type], pa.Array], None] | None:
    """Return the check for a column of this type, or None if Arrow's conversion to the type is never lossy."""
    if pa.types.is_integer(type_):
        return _integers
    if type_ in (DATE, TIME) or pa.types.is_timestamp(type_):
        return _moments
    if type_ == DURATION:
        return _durations
    if type_ == FLOAT32:
        return _floats
    if pa.types.is_decimal(type_):
        return _decimals
    if is_list(type_):
        return _lists
    return _structs if is_struct(type_) else None


def _of_kinds(values: Values, kinds: set[type]) -> list[Any]:
    """Return the values of these Python types."""
    return list(compress(values, map(kinds.__contains__, map(type, values)))) if kinds else []


def _refuse(wrong: Any) -> None:
    raise pa.ArrowInvalid(f"{repr(wrong)[:100]} is not a value of this type")


def _refuse_parts(numbers: list[Any]) -> None:
    """Refuse numbers that are not whole."""
    whole = list(map(int, numbers))
    if whole != numbers:
        _refuse(next(value for value, part in zip(numbers, whole, strict=True) if value != part))


def _integers(values: Values, kinds: set[type], made: pa.Array) -> None:  # noqa: ARG001 (of one shape)
    _refuse_parts(_of_kinds(values, {kind for kind in kinds - _WHOLE if not issubclass(kind, int)}))


def _floats(values: Values, kinds: set[type], made: pa.Array) -> None:  # noqa: ARG001 (of one shape)
    """Refuse a finite number that 32 bits turn into infinity; a number between two floats is rounded."""
    infinite = pc.indices_nonzero(pc.is_inf(made).fill_null(False)).to_pylist()
    for row in infinite:
        if not math.isinf(values[row]):
            _refuse(values[row])


def _decimals(values: Values, kinds: set[type], made: pa.Array) -> None:
    """Refuse a decimal whose value changed: beyond 38 places Arrow may make another number."""
    if decimal.Decimal not in kinds:
        return
    given = _of_kinds(values, {decimal.Decimal})
    unit = decimal.Decimal((0, (1,), -made.type.scale))
    held = list(map(_WIDE.quantize, given, repeat(unit)))
    if held != given:
        _refuse(next(value for value, part in zip(given, held, strict=True) if value != part))


_CLASSES = {DATE: datetime.date, TIME: datetime.time}
"""Python classes of a column's values; those of timestamps are `datetime`."""


def _moments(values: Values, kinds: set[type], made: pa.Array) -> None:
    """Refuse numbers, whose unit would be a guess, and dates or times that are finer than the column."""
    wanted = _CLASSES.get(made.type, datetime.datetime)
    others = kinds - {wanted, _NOTHING}
    for kind in others:
        if not issubclass(kind, wanted | np.datetime64):
            _refuse(_of_kinds(values, {kind})[0])
    finer = _of_kinds(values, others - {np.datetime64})
    _refuse_finer(finer)
    if made.type == DATE:
        moments = [value for value in finer if isinstance(value, datetime.datetime)]
        if set(map(datetime.datetime.time, moments)) - {datetime.time()}:
            _refuse(next(value for value in moments if value.time() != datetime.time()))


def _durations(values: Values, kinds: set[type], made: pa.Array) -> None:  # noqa: ARG001 (of one shape)
    """Refuse anything but spans and whole numbers of microseconds."""
    others = {kind for kind in kinds - _WHOLE - {datetime.timedelta} if not issubclass(kind, int)}
    spans = {kind for kind in others if issubclass(kind, datetime.timedelta)}
    _refuse_finer(_of_kinds(values, spans))
    _refuse_parts(_of_kinds(values, others - spans - {np.timedelta64}))


def _refuse_finer(values: list[Any]) -> None:
    """Refuse NaT, which differs from itself, and nanoseconds, which other libraries' times have."""
    for value in values:
        if value != value or getattr(value, "nanosecond", 0) or getattr(value, "nanoseconds", 0):  # noqa: PLR0124
            _refuse(value)


def _lists(values: Values, kinds: set[type], made: pa.Array) -> None:
    """Refuse texts as lists, and check the elements as values of their own."""
    texts = {kind for kind in kinds if issubclass(kind, _TEXTS)}
    if texts:
        _refuse(_of_kinds(values, texts)[0])
    for array in _of_kinds(values, {kind for kind in kinds if issubclass(kind, np.ndarray)}):
        if array.dtype.kind in "mM" and array.dtype.name[-4:] != "[us]":
            _refuse(array)  # Arrow reads the counts as microseconds, in any unit
    if _check_of(made.type.value_type) is not None:
        elements = list(chain.from_iterable(value for value in values if value is not None))
        check_exact(elements, pc.list_flatten(made))


def _structs(values: Values, kinds: set[type], made: pa.Array) -> None:
    """Refuse fields that the type lacks, and check the fields as values of their own."""
    types = {field.name: field.type for field in made.type}
    if kinds - {dict, _NOTHING}:
        values = [None if value is None else _fields(value, tuple(types)) for value in values]
    present = [value for value in values if value is not None]
    refuse_others(dict.fromkeys(chain.from_iterable(present)), types)
    for number, (name, type_) in enumerate(types.items()):
        if _check_of(type_) is not None:
            fields = [None if value is None else value.get(name) for value in values]
            check_exact(fields, pc.struct_field(made, number))


def _fields(value: Any, names: tuple[str, ...]) -> Mapping[Any, Any]:
    """Return a struct as a dict, from each form that Arrow accepts: by name, by position, or as pairs."""
    if isinstance(value, Mapping):
        return value
    return dict(zip(names, value, strict=True)) if isinstance(value, tuple) else dict(value)
