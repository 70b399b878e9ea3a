"""Convert rows of a Python program into the body of a push, and hold its result; only rows that are no dicts need pyarrow."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import count
from typing import Any
from uuid import UUID

from dbsp.errors import DataError

ARROW_FILE, PARQUET = b"ARROW1", b"PAR1"
"""The first bytes of files of these kinds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pushed:
    """The result of a push: the rows `first` to `end` - 1 of the table are durable.

    `repeated` is True if the service knew this push by producer and sequence, and added nothing. `bad` has the reasons of the
    first of `bad_rows` rows that became dead letters. `processed` says whether a step had taken the rows in time; None without
    `wait_s`.
    """

    table: str
    first: int
    end: int
    repeated: bool = False
    bad_rows: int = 0
    bad: tuple[dict[str, Any], ...] = ()
    processed: bool | None = None
    answer: Mapping[str, Any] = field(repr=False, default_factory=dict)

    @property
    def forgotten(self) -> bool:
        """Return whether the service has forgotten which rows this repeated push had, as a checkpoint was taken since."""
        return self.repeated and self.first == self.end


def body_of(rows: Any) -> bytes:
    """Return rows as a body: bytes as they are, files of Arrow and Parquet and Arrow's rows as a stream, dicts as JSON."""
    if isinstance(rows, bytes):
        if not rows.startswith((ARROW_FILE, PARQUET)):
            return rows
        rows = _file(rows)
    table = _arrow(rows)
    return json_of(dicts_of(rows)) if table is None else as_stream(table.schema, table.to_batches())


def as_stream(schema: Any, batches: Sequence[Any]) -> bytes:
    """Return Arrow record batches as an Arrow IPC stream."""
    import pyarrow as pa  # noqa: PLC0415 - programs that push dicts do without it

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytes(sink.getvalue().to_pybytes())


def _file(data: bytes) -> Any:
    """Return the rows of an Arrow IPC file or a Parquet file; raise `DataError` for one that is damaged."""
    import pyarrow as pa  # noqa: PLC0415 - programs that push no files do without it
    import pyarrow.parquet as pq  # noqa: PLC0415 - as above

    source = pa.BufferReader(data)
    try:
        return pq.read_table(source) if data.startswith(PARQUET) else pa.ipc.open_file(source).read_all()
    except (pa.ArrowException, OSError) as error:
        kind = "Parquet" if data.startswith(PARQUET) else "Arrow IPC"
        raise unreadable_file(kind, error) from None


def unreadable_file(kind: str, error: Exception) -> DataError:
    """Return the error for a file of this kind that pyarrow cannot read."""
    return DataError(f"the {kind} file cannot be read: {' '.join(str(error).split())[:200]}")


def _arrow(rows: Any) -> Any:
    """Return Arrow rows, or rows that can export Arrow, as a `pyarrow.Table`; None for other rows."""
    if not hasattr(rows, "__arrow_c_stream__"):
        return None
    import pyarrow as pa  # noqa: PLC0415 - as above

    return pa.table(rows)


def dicts_of(rows: Any) -> list[dict[str, Any]]:
    """Return rows as a list of dicts."""
    if isinstance(rows, Mapping):
        raise DataError(f"rows must be a list of dicts, and this is a dict: columns={list(rows)}", "write [row]")
    table = _arrow(rows)
    return list(rows) if table is None else list(table.to_pylist())


def json_of(value: Any) -> bytes:
    """Return rows as JSON: dates, times and decimals as text, bytes as hexadecimal digits, spans as microseconds.

    Scalars of numpy are numbers, and an absent time of pandas is a null. **Errors** `DataError` for a value of another kind.
    """
    return json.dumps(value, default=_in_json).encode()


def _in_json(value: Any) -> Any:
    """Return the JSON form of a value of a type that JSON lacks."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    if isinstance(value, datetime.date | datetime.time | datetime.timedelta) and value != value:  # noqa: PLR0124 - pandas' NaT
        return None
    if isinstance(value, datetime.timedelta):
        return value // datetime.timedelta(microseconds=1)
    if isinstance(value, datetime.date | datetime.time | Decimal | UUID):
        return str(value)
    if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
        return value.tolist()
    raise DataError(
        f"a value of a kind that no column takes: kind={type(value).__name__} value={repr(value)[:80]}",
        "push numbers, texts, bytes, dates, times, lists and dicts, or an Arrow table",
    )


def unlike(names: Sequence[str]) -> list[str]:
    """Return names for the members of an object: of equal names, the later ones get a number.

    **Example**

    >>> unlike(["a", "b", "a", "a_1", "a"])
    ['a', 'b', 'a_1', 'a_1_1', 'a_2']
    """
    found: dict[str, None] = {}
    for name in names:
        numbered = (f"{name}_{number}" for number in count(1))
        found[name if name not in found else next(each for each in numbered if each not in found)] = None
    return list(found)
