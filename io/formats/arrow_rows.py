"""Conversion between Arrow IPC streams and rows.

Input: the columns of the table by name, in any order. Columns of other types are converted by the rules of
`dbsp.zset.given`. An optional int8 column `__op` is 0 for insert, 1 for delete. If every row is a delete, a table
with a primary key needs the key columns only. A stream of another form, or with a column whose type never fits, is a
single bad row, with its beginning as payload. A value that does not fit, a forbidden null, or another `__op` makes
only its row bad.

Output: the columns, and a last int64 column `weight`.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dbsp.algebra.table import NO_DELETE, Table
from dbsp.errors import CapacityError, DataError
from dbsp.io.formats.arrow_sizes import decoded_bytes, row_bytes, stream_sizes
from dbsp.io.formats.near_names import unknown_name
from dbsp.io.formats.wire import to_json_text
from dbsp.io.pushed import PAYLOAD_CHARS_MAX, BadRow, Push, PushBounds
from dbsp.logs import DELETE, INSERT
from dbsp.zset.arrow_stream import arrow_stream
from dbsp.zset.batch import Batch
from dbsp.zset.calendar import OUTSIDE, counts_days, outside
from dbsp.zset.coded import is_alike, is_coded
from dbsp.zset.given import column_given, takes
from dbsp.zset.loose import loose_batch
from dbsp.zset.schema import Column

OPERATION = "__op"
REASON_CHARS_MAX = 300
MESSAGE_BOUNDS = PushBounds(max_decoded_bytes=256 << 20, bad_rows_max=100_000)
"""Bounds of one message of a topic.

Brokers accept a megabyte by default, and a compressed message may expand to any size.
"""
Cast = Callable[[pa.Array, pa.DataType], pa.Array]
"""The values in another type; raises `ArrowException`, `ValueError` or `ArithmeticError` if one of them does not fit."""


class _StreamError(Exception):
    """The reason why a whole stream cannot be used."""


def decode_arrow(data: bytes, table: Table, bounds: PushBounds | None = None) -> Push:
    """Decode all rows of an IPC stream, good and bad, in order; without `bounds`, no content raises an error.

    A stream that would exceed `MESSAGE_BOUNDS` becomes one bad row before it is unpacked.

    **Errors** with `bounds`: `CapacityError` if the stream would exceed them, `DataError` if it has more bad rows
    than allowed.
    """
    limits = bounds or MESSAGE_BOUNDS
    try:
        found = _open(pa.py_buffer(data), table, limits)
        for field in found.schema:
            if field.name in table.schema and not takes(table.schema[field.name].type, field.type):
                raise _StreamError(f"column {field.name}: expected {table.schema[field.name].type}, found {field.type}")
        return fitted(found, table, bounds=limits)
    except (CapacityError, DataError) as error:
        if bounds is not None:
            raise
        return _bad_stream(data, error.message, table)
    except (_StreamError, pa.ArrowException, ValueError, OSError) as error:
        return _bad_stream(data, f"not an Arrow stream of this table: {error}", table)


def _bad_stream(data: bytes, reason: str, table: Table) -> Push:
    """Return a whole stream as one bad row, with its beginning in base64 as payload."""
    payload = base64.b64encode(data[: PAYLOAD_CHARS_MAX // 4 * 3]).decode()
    bad = BadRow(index=0, reason=reason[:REASON_CHARS_MAX], payload=payload)
    return Push(batch=Batch.empty(table.schema), operations=np.empty(0, dtype=np.int8), bad=(bad,))


def _open(data: pa.Buffer, table: Table, bounds: PushBounds) -> pa.Table:
    rows, size = 0, 0
    for message in stream_sizes(data):
        rows, size = rows + message.rows, size + message.bytes
        bounds.refuse_size(rows, max(size, rows * row_bytes(table.schema)))
    with pa.ipc.open_stream(data) as reader:
        found = reader.read_all()
    found.validate(full=True)
    bounds.refuse_size(rows, sum(_decoded_bytes(column) for column in found.columns))
    return found.combine_chunks()


def _decoded_bytes(column: pa.ChunkedArray) -> int:
    try:
        return decoded_bytes(column)
    except KeyError:  # Arrow has types for whose values pyarrow has no class
        raise _StreamError(f"columns of this type cannot be read: {column.type}") from None


def fitted(found: pa.Table, table: Table, cast: Cast = column_given, bounds: PushBounds | None = None) -> Push:
    """Convert columns to the table's types and return a push; a row with a value that does not fit is bad.

    **Errors** `DataError` with `bounds`, as soon as there are more bad rows than allowed.
    """
    bad: dict[int, BadRow] = {}
    for number, (name, column) in enumerate(zip(found.schema.names, found.columns, strict=True)):
        type_ = table.schema[name].type if name in table.schema else column.type
        if name == OPERATION or type_ in {column.type, _values(column.type)}:
            continue
        pieces, place = [], 0
        for piece, failed in converted(_whole(column, type_), type_, cast):
            if failed and place not in bad:
                bad[place] = BadRow(index=place, reason=f"column {name}: {failed}", payload="")
                if bounds is not None and bounds.bad_rows_max is not None and len(bad) > bounds.bad_rows_max:
                    bounds.refuse_bad(list(bad.values()))
            pieces.append(piece)
            place += len(piece)
        found = found.set_column(number, name, pa.chunked_array(pieces, type_))
    return push_of(found, table, {row.index: row.reason for row in bad.values()})


def _values(type_: pa.DataType) -> pa.DataType | None:
    """Return the value type of a dictionary type; None for any other type."""
    return type_.value_type if pa.types.is_dictionary(type_) else None


def converted(values: pa.Array, wanted: pa.DataType, cast: Cast) -> Iterator[tuple[pa.Array, str]]:
    """Yield pieces of the values in the wanted type, each with an empty reason.

    A failing piece is bisected; a single value that does not fit becomes a null with its reason.
    """
    try:
        yield cast(values, wanted), ""
    except (pa.ArrowException, ValueError, ArithmeticError) as error:
        if len(values) <= 1:
            yield pa.nulls(len(values), wanted), " ".join(str(error).split()) if len(values) else ""
        else:
            middle = len(values) // 2
            yield from converted(values[:middle], wanted, cast)
            yield from converted(values[middle:], wanted, cast)


def push_of(found: pa.Table, table: Table, reasons: Mapping[int, str] = MappingProxyType({})) -> Push:
    """Return the rows of an Arrow table as a push.

    `reasons` maps the numbers of rows that are bad already to their reasons.
    """
    names = found.schema.names
    if len(set(names)) != len(names):
        raise _StreamError(f"repeated columns: {names}")
    unknown = [name for name in names if name not in table.schema and name != OPERATION]
    if unknown:
        raise _StreamError(unknown_name("column", unknown[0], table.schema.names))
    operations, bad_operation = _operations(found)
    columns = [_column(found, column, table) for column in table.schema]
    reasons = dict(reasons)
    for row in np.flatnonzero(bad_operation):
        reasons.setdefault(int(row), f"{OPERATION} is neither 0 nor 1")
    if table.append_only:
        for row in np.flatnonzero(operations == DELETE):
            reasons.setdefault(int(row), NO_DELETE)
    for column, array in zip(table.schema, columns, strict=True):
        for row in np.flatnonzero(_forbidden_null(array, column, operations, table)):
            reasons.setdefault(int(row), f"column {column.name}: missing or null")
        for row in np.flatnonzero(outside(array)) if counts_days(array.type) else ():
            reasons.setdefault(int(row), f"column {column.name}: {OUTSIDE}")
    batch = loose_batch(table.schema, columns)
    if not reasons:
        return Push(batch=batch, operations=operations)
    bad_rows = np.array(sorted(reasons), dtype=np.int64)
    payloads = _payloads(batch.take(bad_rows))
    bad = tuple(
        BadRow(index=int(row), reason=reasons[int(row)], payload=text)
        for row, text in zip(bad_rows, payloads, strict=True)
    )
    keep = np.ones(len(batch), dtype=np.bool_)
    keep[bad_rows] = False
    return Push(batch=batch.filter(keep), operations=operations[keep], bad=bad)


def _operations(found: pa.Table) -> tuple[NDArray[np.int8], NDArray[np.bool_]]:
    """Return INSERT or DELETE per row, and the mask of the rows whose operation is neither."""
    if OPERATION not in found.schema.names:
        return np.full(found.num_rows, INSERT, dtype=np.int8), np.zeros(found.num_rows, dtype=np.bool_)
    column = _whole(found.column(OPERATION), pa.int8())
    if column.type != pa.int8():
        raise _StreamError(f"column {OPERATION}: expected int8, found {column.type}")
    operations = pc.fill_null(column, -1).to_numpy(zero_copy_only=False).astype(np.int8)
    return operations, (operations != INSERT) & (operations != DELETE)


def _column(found: pa.Table, column: Column, table: Table) -> pa.Array:
    if column.name not in found.schema.names:
        return table.absent(column, found.num_rows)
    return _whole(found.column(column.name), column.type)


def _whole(column: pa.ChunkedArray, wanted: pa.DataType) -> pa.Array:
    """Return a column as one array; a dictionary stays encoded only if its values have the wanted text type."""
    try:
        chunks = column.chunks or [pa.array([], column.type)]
        array = chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks)
        return array if not is_coded(array) or is_alike(array, wanted) else array.dictionary_decode()
    except KeyError:  # Arrow has types for whose values pyarrow has no class
        raise _StreamError(f"columns of this type cannot be read: {column.type}") from None


def _forbidden_null(array: pa.Array, column: Column, operations: NDArray[np.int8], table: Table) -> NDArray[np.bool_]:
    in_key = column.name in table.primary_key
    if array.null_count == 0 or (column.nullable and not in_key):
        return np.zeros(len(array), dtype=np.bool_)
    null: NDArray[np.bool_] = array.is_null().to_numpy(zero_copy_only=False)
    return null if in_key or not table.primary_key else null & (operations != DELETE)


def _payloads(batch: Batch) -> list[str]:
    texts = [to_json_text(array).to_pylist() for array in batch.columns]
    names = [json.dumps(name) for name in batch.schema.names]
    return [
        "{" + ", ".join(f"{n}: {t}" for n, t in zip(names, row, strict=True)) + "}" for row in zip(*texts, strict=True)
    ]


def encode_arrow(batch: Batch) -> bytes:
    """Encode a batch as one IPC stream with the weights in the last column."""
    return arrow_stream(batch.to_arrow("__weight" if "weight" in batch.schema else "weight"))
