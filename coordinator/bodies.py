"""The body of a push from rows of a Python program, and its result; only rows that are no dicts need pyarrow."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dbsp.errors import DataError

ARROW = "application/vnd.apache.arrow.stream"
ARROW_FILE, PARQUET = b"ARROW1", b"PAR1"
"""How files begin."""


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
        raise DataError(f"the {kind} file cannot be read: {' '.join(str(error).split())[:200]}") from None


def _arrow(rows: Any) -> Any:
    """Return Arrow rows, or rows that can export Arrow, as a `pyarrow.Table`; None for other rows."""
    if not hasattr(rows, "__arrow_c_stream__"):
        return None
    import pyarrow as pa  # noqa: PLC0415 - as above

    return pa.table(rows)


def dicts_of(rows: Any) -> list[dict[str, Any]]:
    """Return rows as a list of dicts."""
    if isinstance(rows, Mapping):
        raise DataError(f"rows are a list of dicts, and this is one: columns={list(rows)}", "write [row]")
    table = _arrow(rows)
    return list(rows) if table is None else list(table.to_pylist())


def json_of(value: Any) -> bytes:
    """Return rows as JSON; values that JSON does not have, such as dates and decimals, as text."""
    return json.dumps(value, default=str).encode()
