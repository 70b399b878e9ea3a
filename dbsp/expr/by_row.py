"""Functions with constants that differ from row to row: `.left(3)` takes a constant, `.left(col("n"))` a column.

**Law** A row has the function's value for its own constants, and null where one of them is null. Some constants are
refused when a circuit is built (a position below 1, an unknown zone). In a column, they fail their row.

**Cost** The rows with equal constants are computed together: one call of the kernel per different constant, some ten
microseconds. So the computation is fast for typical columns of prefixes, zones or counts. It is slow if every row has
a constant of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from dbsp.errors import CircuitError
from dbsp.expr import dates, list_functions, patterns, strings, zones
from dbsp.expr.expression import ColumnRef, Expression, Function, Operands, broadcast
from dbsp.expr.types import is_integer, type_of, typed
from dbsp.zset.runs import begins, lengths
from dbsp.zset.schema import STRING

SAMPLES: dict[Function, tuple[Any, ...]] = {
    **dict.fromkeys((strings.STARTS_WITH, strings.ENDS_WITH, strings.CONTAINS, strings.POSITION), ("a",)),
    **dict.fromkeys((strings.LIKE, strings.ILIKE, strings.STRIP, patterns.REGEXP_MATCH), ("a",)),
    **dict.fromkeys((strings.LEFT, strings.RIGHT, strings.REPEAT), (1,)),
    **dict.fromkeys((strings.LPAD, strings.RPAD), (1, " ")),
    strings.SUBSTR: (1, 1),
    strings.REPLACE: ("a", "b"),
    strings.SPLIT_PART: ("a", 1),
    list_functions.ELEMENT: (1,),
    list_functions.LIST_SLICE: (1, 1),
    dates.ADD_MONTHS: (1,),
    **dict.fromkeys((zones.IN_ZONE, zones.FROM_ZONE), ("UTC",)),
}
"""By function, a sample of its constants: the Python types of the sample say which constants are text or whole numbers."""


def by_row(function: Function) -> Function:
    """Return the same function with its constants as arguments."""
    return BY_ROW[function]


def _made(function: Function, sample: tuple[Any, ...]) -> Function:
    def fit(operands: Operands) -> tuple[Expression, ...]:
        subject, *constants = typed(operands)
        own = Operands(function.name, operands.args[:1], operands.types[:1], sample)
        (subject,) = function.fit(own)
        for constant, type_, shape in zip(constants, operands.types[1:], sample, strict=True):
            wanted = type_of(constant, type_)
            if not (wanted == STRING if isinstance(shape, str) else is_integer(wanted)):
                cast = "dbsp.STRING" if isinstance(shape, str) else "dbsp.INT64"
                raise CircuitError(
                    f"{function.name} does not take this type here: got={constant} type={wanted}",
                    f"write ({constant}).cast({cast})",
                )
        return (subject, *constants)

    def result(subject: pa.DataType, *_: Any) -> pa.DataType:
        type_: pa.DataType = function.result(subject, *sample)
        return type_

    def compute(values: Any, *constants: Any) -> pa.Array:
        rows = max(len(datum) for datum in (values, *constants) if not isinstance(datum, pa.Scalar))
        return _in_groups(function, broadcast(values, rows), [broadcast(datum, rows) for datum in constants])

    nulls = "always" if function.nulls == "always" else "any"
    name = f"{function.name}_by_row"
    return Function(name=name, fit=fit, result=result, compute=compute, nulls=nulls, text=function.text)


def _in_groups(function: Function, values: pa.Array, constants: Sequence[pa.Array]) -> pa.Array:
    """Sort the rows by their constants, compute each run of rows with equal constants, and restore the order."""
    if len(values) == 0:
        return pa.nulls(0, function.result(values.type, *SAMPLES[function]))
    codes = np.zeros(len(values), np.int64)
    for column in constants:
        encoded = column.dictionary_encode()
        indices = np.asarray(encoded.indices.fill_null(len(encoded.dictionary)), np.int64)
        codes = codes * (len(encoded.dictionary) + 1) + indices
    order = np.argsort(codes, kind="stable")
    firsts = np.flatnonzero(begins(codes[order]))
    values = values.take(pa.array(order))
    each = zip(*(column.take(pa.array(order[firsts])).to_pylist() for column in constants), strict=True)
    pieces = [
        _of_one(function, values.slice(first, length), options)
        for first, length, options in zip(firsts.tolist(), lengths(firsts, len(order)).tolist(), each, strict=True)
    ]
    back = np.empty(len(order), np.int64)
    back[order] = np.arange(len(order))
    return pa.concat_arrays(pieces).take(pa.array(back))


def _of_one(function: Function, values: pa.Array, options: tuple[Any, ...]) -> pa.Array:
    """Compute the function over rows that share their constants; `ArrowInvalid` if the function refuses the constants."""
    promised = function.result(values.type, *options)
    if None in options:
        return pa.nulls(len(values), promised)
    try:
        function.fit(Operands(function.name, (ColumnRef("x"),), (values.type,), options))
    except CircuitError as error:
        raise pa.ArrowInvalid(error.message) from error
    computed = broadcast(function.compute(values, *options), len(values))
    return computed if computed.type == promised else computed.cast(promised)


BY_ROW = {function: _made(function, sample) for function, sample in SAMPLES.items()}
FUNCTIONS = tuple(BY_ROW.values())
