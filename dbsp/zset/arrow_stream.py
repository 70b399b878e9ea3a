"""Write Arrow tables as bytes of an Arrow IPC stream."""

from __future__ import annotations

import pyarrow as pa


def arrow_stream(table: pa.Table) -> bytes:
    """Return a table as one Arrow IPC stream.

    **Example**

    >>> pa.ipc.open_stream(arrow_stream(pa.table({"x": [1, 2]}))).read_all().to_pylist()
    [{'x': 1}, {'x': 2}]
    """
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())
