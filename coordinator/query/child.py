"""The process in which queries run: `python -m dbsp.coordinator.query.child`, fed by `dbsp.coordinator.query.process`.

DuckDB bounds its own buffers and checks for an interrupt between vectors, but neither covers one call of one function.
Joining two strings of a gigabyte costs gigabytes, and no timer stops it. So statements run here, where the system
limits the process: memory by `RLIMIT_DATA`, time by the parent's kill. `RLIMIT_CPU` limits the time if the parent is
gone.

Protocol, on standard input and output; a header is one line of JSON:

    parent  {"sql", "views", "unread",        child  {"reads": {view: needed}} or {"error": {…}}
             "limits", "dialect", "explain",
             "streamed"}
    parent  {"bytes"}; of each view that is
            read {"whole"} + an Arrow stream
            or, if it has a sieve, many times
            {"piece"} + an Arrow stream,      child  {"more"} to each of these,
            then {"end"}                      child  {"rows"} + one Arrow stream for each portion of the result, then
                                                     {"done": true}; {"error": {…}} at any of these places

Then the next query follows; the end of the input ends the process.
"""

from __future__ import annotations

import errno
import json
import resource
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np
import pyarrow as pa

from dbsp.coordinator.children import failure, put
from dbsp.coordinator.query.pushdown import Needed
from dbsp.coordinator.query.sieve import Sifting
from dbsp.coordinator.query.statement import (
    WEIGHT,
    QueryLimits,
    Unreadable,
    parts_of,
    repeat_by_weight,
    run_query,
    sifting_connection,
    stream_query,
)
from dbsp.errors import CapacityError, DbspError, InternalError

READY = {"ready": True}
GRACE_CPU_S = 5
OWN_BYTES_MAX = 256 << 20
COPIES_OF_A_VIEW = 3
NO_THREAD = "can't start new thread"
"""What Python says if the memory of a new thread's stack is beyond the limit."""


def main() -> None:
    """Serve queries until the input ends."""
    pa.set_cpu_count(1)
    own_bytes = _data_bytes() + OWN_BYTES_MAX
    serve(sys.stdin.buffer, sys.stdout.buffer, lambda limits, view_bytes: bounded(limits, own_bytes, view_bytes))


def serve(source: BinaryIO, sink: BinaryIO, bound: Callable[[QueryLimits, int], None]) -> None:
    """Serve queries until the input ends; `bound(limits, bytes of the views)` is called before each runs."""
    put(sink, READY)
    while line := source.readline():
        asked = json.loads(line)
        limits = QueryLimits(**asked["limits"])
        try:
            bound(limits, 0)
            statement = _statement(asked)
            parts = parts_of(statement.sql, asked["views"], Unreadable(**asked["unread"]))
        except Exception as error:  # noqa: BLE001 - whatever it is, the parent hears of it
            put(sink, failure(reported(error, limits)))
            continue
        put(sink, {"reads": {name: asdict(needed) for name, needed in parts.items()}})
        given = json.loads(source.readline() or "{}")
        if not given:
            return
        bound(limits, given["bytes"])
        received = _Received(source, sink, limits, given["bytes"], bound)
        tables = {name: received.table(name, needed, statement.prelude) for name, needed in parts.items()}
        renew = partial(bound, limits, received.size)
        if asked["streamed"]:
            _answer(sink, partial(statement.portions, tables, limits), limits, renew)
        else:
            _answer(sink, lambda: iter([statement.run(tables, limits, asked["explain"])]), limits, renew)  # noqa: B023 - called at once


@dataclass(slots=True)
class _Received:
    """The tables of a query, as the parent sends them; `size` are the bytes of those that are held."""

    source: BinaryIO
    sink: BinaryIO
    limits: QueryLimits
    size: int
    bound: Callable[[QueryLimits, int], None]

    def table(self, view: str, needed: Needed, prelude: Sequence[str]) -> pa.Table:
        """Return the rows of a view that the statement needs, with their weights."""
        head = json.loads(self.source.readline())
        if "whole" in head or needed.sieve is None:
            return get_table(self.source)
        with sifting_connection(self.limits, prelude) as connection:
            sifting = Sifting(view, needed.sieve, connection)
            while "piece" in head:
                piece = get_table(self.source)
                self.bound(self.limits, self.size + sifting.size + 2 * piece.nbytes)
                put(self.sink, {"more": sifting.add(repeat_by_weight(piece))})
                head = json.loads(self.source.readline())
        table = sifting.table()
        self.size += table.nbytes
        self.bound(self.limits, self.size)
        return table.append_column(WEIGHT, pa.array(np.ones(len(table), np.int64)))


class QueryStatement(Protocol):
    """A statement for DuckDB."""

    @property
    def prelude(self) -> Sequence[str]:
        """Return the statements to run before it, such as those that make macros."""

    @property
    def sql(self) -> str:
        """Return its text."""

    def run(self, tables: Mapping[str, pa.Table], limits: QueryLimits, explain: str | None = None) -> pa.Table:
        """Return its result over these tables, or with `explain` its plan."""

    def portions(self, tables: Mapping[str, pa.Table], limits: QueryLimits) -> Iterator[pa.RecordBatch]:
        """Yield its result in portions."""


@dataclass(frozen=True, slots=True)
class _Plain:
    """A statement in DuckDB's own dialect."""

    sql: str
    prelude: tuple[str, ...] = ()

    def run(self, tables: Mapping[str, pa.Table], limits: QueryLimits, explain: str | None = None) -> pa.Table:
        return run_query(self.sql, tables, limits, tuple(tables), explain=explain)

    def portions(self, tables: Mapping[str, pa.Table], limits: QueryLimits) -> Iterator[pa.RecordBatch]:
        return stream_query(self.sql, tables, limits, tuple(tables))


def _statement(asked: Mapping[str, Any]) -> QueryStatement:
    if asked.get("dialect") is None:
        return _Plain(asked["sql"])
    from dbsp.coordinator.query.dialect import Dialect, translate  # noqa: PLC0415 (sqlglot loads slowly, and is an extra)

    return translate(asked["sql"], Dialect(**asked["dialect"]))


def _answer(
    sink: BinaryIO,
    run: Callable[[], Iterator[pa.Table | pa.RecordBatch]],
    limits: QueryLimits,
    renew: Callable[[], None],
) -> None:
    """Write the portions of a result; `renew` gives each of them the whole time limit."""
    try:
        for portion in run():
            put(sink, {"rows": portion.num_rows})
            put_table(sink, pa.Table.from_batches([portion]) if isinstance(portion, pa.RecordBatch) else portion)
            sink.flush()
            renew()
    except Exception as error:  # noqa: BLE001 - whatever it is, the parent hears of it
        put(sink, failure(reported(error, limits)))
    else:
        put(sink, {"done": True})


def reported(error: Exception, limits: QueryLimits) -> DbspError:
    """Return the error that the caller of a query gets: one for the caller, a reached memory limit, or a bug."""
    if isinstance(error, DbspError):
        return error
    if isinstance(error, MemoryError) or NO_THREAD in str(error) or getattr(error, "errno", None) == errno.ENOMEM:
        return too_much_memory(limits)
    traceback.print_exception(error)
    return InternalError(f"a bug in a query: {type(error).__name__}: {error}", "report it with the statement")


def too_much_memory(limits: QueryLimits) -> CapacityError:
    """Return the error of a query that reached the memory limit of the process."""
    return CapacityError(
        f"the query needs too much memory: memory_mb_max={limits.memory_mb_max}",
        "ask for less, or raise `memory_mb_max` in [query]",
    )


def bounded(limits: QueryLimits, own_bytes: int, view_bytes: int) -> None:
    """Limit this process to its own memory, the views and the query's memory, and to the query's processor time."""
    bytes_max = own_bytes + COPIES_OF_A_VIEW * view_bytes + (limits.memory_mb_max << 20)
    resource.setrlimit(resource.RLIMIT_DATA, (bytes_max, resource.getrlimit(resource.RLIMIT_DATA)[1]))
    used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
    cpu_s = ceil(used + limits.timeout_s * limits.threads) + GRACE_CPU_S
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, resource.getrlimit(resource.RLIMIT_CPU)[1]))


def _data_bytes() -> int:
    """Return the bytes that `RLIMIT_DATA` counts for this process; 0 where the system neither reports nor limits them."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return 0
    (line,) = [line for line in status.splitlines() if line.startswith("VmData:")]
    return int(line.split()[1]) << 10


# --- the wire -------------------------------------------------------------------------------------------------------


def put_table(sink: BinaryIO, table: pa.Table) -> None:
    """Write a table as an Arrow stream."""
    with pa.ipc.new_stream(pa.PythonFile(Uncloseable(sink), mode="w"), table.schema) as writer:
        writer.write_table(table)


def get_table(source: BinaryIO) -> pa.Table:
    """Read a table from an Arrow stream."""
    with pa.ipc.open_stream(pa.PythonFile(Uncloseable(source), mode="r")) as reader:
        return reader.read_all()


@dataclass(frozen=True, slots=True)
class Uncloseable:
    """A file that Arrow cannot close, because another stream follows."""

    file: BinaryIO
    closed: bool = False

    def read(self, count: int = -1) -> bytes:
        """Read up to `count` bytes."""
        return self.file.read(count)

    def write(self, data: bytes) -> int:
        """Write the bytes."""
        return self.file.write(data)

    def flush(self) -> None:
        """Flush the file."""
        self.file.flush()

    def readable(self) -> bool:
        """Return True, as Arrow requires."""
        return True

    def writable(self) -> bool:
        """Return True, as Arrow requires."""
        return True

    def seekable(self) -> bool:
        """Return False: the file is a pipe."""
        return False

    def close(self) -> None:
        """Leave the file open."""


if __name__ == "__main__":
    main()
