"""Methods on time: windows, and bounds on how late a row may be."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Self

import pyarrow as pa

from dbsp.algebra.final import FinalNode
from dbsp.algebra.hop import Hop
from dbsp.algebra.session import Session
from dbsp.algebra.watermark import Watermark
from dbsp.diagnostics.source_lines import located, user_line
from dbsp.errors import CircuitError
from dbsp.expr.build import Expr, col
from dbsp.expr.durations import check_span, micros
from dbsp.expr.names import missing_column
from dbsp.stream.computed_keys import only, with_keys
from dbsp.stream.handle import Handle
from dbsp.zset.schema import Column, Schema

START, END = "window_start", "window_end"
NONE = datetime.timedelta(0)


class TimeMethods(Handle):
    """Windows and watermarks."""

    __slots__ = ()

    def tumble(self, time: str | Expr, size: datetime.timedelta, offset: datetime.timedelta = NONE) -> Self:
        """Add the columns `window_start` and `window_end` of a row's window; windows have one size and follow each other.

        **Law** Linear. window_start <= time < window_end = window_start + size, and window_start - offset is a whole
        number of sizes after 1970. A null time gives null windows.

        **Shape** `time` is a timestamp column. Group by the two columns for one row per window.

        **Example**

        >>> import datetime as dt, dbsp
        >>> bids = dbsp.table("bids", {"at": dbsp.TIMESTAMP, "price": dbsp.INT64})
        >>> best = bids.tumble("at", dbsp.minutes(10)).group_by("window_end").aggregate(best=dbsp.max("price"))
        >>> with dbsp.open(dbsp.circuit("demo", {"best": best})) as run:
        ...     run.push("bids", [{"at": dt.datetime(2024, 1, 1, 9, 3), "price": 5}])
        ...     run.push("bids", [{"at": dt.datetime(2024, 1, 1, 9, 7), "price": 8}])
        ...     print([(str(end), best, w) for (end, best), w in run.step()["best"].to_rows()])
        ...     run.delete("bids", [{"at": dt.datetime(2024, 1, 1, 9, 7), "price": 8}])
        ...     print([(str(end), best, w) for (end, best), w in run.step()["best"].to_rows()])
        [('2024-01-01 09:10:00', 8, 1)]
        [('2024-01-01 09:10:00', 5, 1), ('2024-01-01 09:10:00', 8, -1)]
        """
        source = user_line()
        with located(source):
            name = self._window_time("tumble", time)
            check_span("size", size)
            start = col(name).bucket(size, check_span("offset", offset, least=-micros(datetime.timedelta.max)))
            kept = [(column, column) for column in self.columns]
            return self._selected([*kept, (START, start), (END, start + size)], source)

    def hop(
        self, time: str | Expr, size: datetime.timedelta, slide: datetime.timedelta, offset: datetime.timedelta = NONE
    ) -> Self:
        """Emit a row once per window that contains its time; windows have one size, and one begins every `slide`.

        **Law** Linear. A row is emitted for every window_start <= time < window_end = window_start + size with window_start
        - offset a whole number of slides after 1970. A null time gives one row with null windows; if size < slide,
        times between windows give no row.

        **Cost** size / slide rows per row.

        **Example**

        >>> import datetime as dt, dbsp
        >>> t = dbsp.table("t", {"at": dbsp.TIMESTAMP})
        >>> counts = t.hop("at", dbsp.minutes(10), dbsp.minutes(5)).group_by("window_start").aggregate(n=dbsp.count())
        >>> with dbsp.open(dbsp.circuit("demo", {"counts": counts})) as run:
        ...     run.push("t", [{"at": dt.datetime(2024, 1, 1, 9, 7)}])
        ...     print([(str(start.time()), n, w) for (start, n), w in run.step()["counts"].to_rows()])
        ...     run.delete("t", [{"at": dt.datetime(2024, 1, 1, 9, 7)}])
        ...     print([(str(start.time()), n, w) for (start, n), w in run.step()["counts"].to_rows()])
        [('09:00:00', 1, 1), ('09:05:00', 1, 1)]
        [('09:00:00', 1, -1), ('09:05:00', 1, -1)]
        """
        source = user_line()
        with located(source):
            name = self._window_time("hop", time)
            check_span("size", size)
            check_span("slide", slide)
            check_span("offset", offset, least=-micros(datetime.timedelta.max))
            if micros(size) // micros(slide) > WINDOWS_MAX:
                raise CircuitError(
                    f"too many windows per row: size={size} slide={slide} windows_max={WINDOWS_MAX}",
                    "a longer slide, or a rolling aggregate",
                )
            bounds = (Column(bound, self.schema[name].type, self.schema[name].nullable) for bound in (START, END))
            node = Hop(
                input=self.node, time=name, size_us=micros(size), slide_us=micros(slide), offset_us=micros(offset),
                start=START, end=END, schema=Schema((*self.schema.columns, *bounds)), source=source,
            )  # fmt: skip
            return self._made(node)

    def session(
        self, time: str | Expr, gap: datetime.timedelta, partition_by: str | Expr | Sequence[str | Expr] = ()
    ) -> Self:
        """Add session windows: consecutive rows of a partition at most `gap` apart share `window_start` and `window_end`.

        **Law** A session begins where the time since the row before is more than `gap`. Its first time is window_start,
        its last time plus `gap` is window_end. Insertions merge sessions, deletions split them. A null time gives null
        windows.

        **State** The rows, in order of time within their partition.

        **Cost** The rows of the sessions around the changed rows, which all change when their session does. Group by
        the partition and the windows for one row per session.

        **Example**

        >>> import datetime as dt, dbsp
        >>> t = dbsp.table("t", {"user": dbsp.STRING, "at": dbsp.TIMESTAMP})
        >>> visits = t.session("at", dbsp.minutes(10), partition_by="user")
        >>> counts = visits.group_by("window_start").aggregate(n=dbsp.count())
        >>> with dbsp.open(dbsp.circuit("demo", {"counts": counts})) as run:
        ...     run.push("t", [{"user": "a", "at": dt.datetime(2024, 1, 1, 9, minute)} for minute in (0, 8, 16)])
        ...     print([(str(start.time()), n, w) for (start, n), w in run.step()["counts"].to_rows()])
        ...     run.delete("t", [{"user": "a", "at": dt.datetime(2024, 1, 1, 9, 8)}])
        ...     print([(str(start.time()), n, w) for (start, n), w in run.step()["counts"].to_rows()])
        [('09:00:00', 3, 1)]
        [('09:00:00', 1, 1), ('09:00:00', 3, -1), ('09:16:00', 1, 1)]
        """
        source = user_line()
        with located(source):
            name = self._window_time("session", time)
            check_span("gap", gap)
            given = (partition_by,) if isinstance(partition_by, str | Expr) else partition_by
            stream, partition = with_keys(self, given, source)
            if name in partition:
                raise CircuitError(
                    f"sessions of a time per the same time: column={name}", "leave it out of partition_by"
                )
            bounds = (Column(bound, self.schema[name].type) for bound in (START, END))
            node = Session(
                input=stream.node, time=name, gap_us=micros(gap), partition=partition, start=START, end=END,
                schema=Schema((*stream.schema.columns, *bounds)), source=source,
            )  # fmt: skip
            return only(self._made(node), [*self.columns, START, END], source)

    def with_watermark(self, time: str | Expr, lateness: datetime.timedelta) -> Self:
        """Bound the lateness of rows: the waterline is `lateness` below the latest time seen, and rows below it are dropped.

        **Law** On a table, or filters and selects of one, each input partition has the latest time of its rows in the
        steps before. The waterline is the least of these, minus `lateness`, over the partitions that are not idle. A
        row that is not later in its own partition is never late, however the input is cut into steps. Exceptions are
        partitions that were idle or did not exist. On any other stream the waterline is the latest time of all rows in
        the steps before, minus `lateness`, so lateness depends on the steps. A row (also a retraction) below the
        waterline goes to the dead-letter log. Other rows pass unchanged, and so do rows whose time is null. A replay
        decides alike.

        **State** None here. Operators downstream gradually drop the groups, windows, distinct rows and join keys that
        the waterline has passed; output already emitted for them stays.

        **Example**

        >>> import datetime as dt, dbsp
        >>> t = dbsp.table("t", {"at": dbsp.TIMESTAMP})
        >>> seen = t.with_watermark("at", dbsp.seconds(10)).select(second=dbsp.col("at").second())
        >>> with dbsp.open(dbsp.circuit("demo", {"seen": seen})) as run:
        ...     run.push("t", [{"at": dt.datetime(2024, 1, 1, 9, 0, 30)}])
        ...     print(run.step()["seen"].to_rows())
        ...     run.push("t", [{"at": dt.datetime(2024, 1, 1, 9, 0, 20)}, {"at": dt.datetime(2024, 1, 1, 9, 0, 19)}])
        ...     print(run.step()["seen"].to_rows())
        ...     run.delete("t", [{"at": dt.datetime(2024, 1, 1, 9, 0, 20)}])
        ...     print(run.step()["seen"].to_rows())
        ...     print(run.dead_letters()[0].reason)
        [((30,), 1)]
        [((20,), 1)]
        [((20,), -1)]
        late: at is below the waterline 2024-01-01T09:00:20.000000
        """
        source = user_line()
        with located(source):
            name = self._time_column("with_watermark", time)
            check_span("lateness", lateness, least=0)
            node = Watermark(
                input=self.node, column=name, lateness_us=micros(lateness), schema=self.schema, source=source
            )
            return self._made(node)

    def final(self, column: str | Expr | None = None) -> Self:
        """Emit rows only once nothing can change them: when the waterline has passed the end of their window.

        **Law** A row is emitted in the first step whose waterline has passed it, and is never retracted.

        **Shape** `column` is one that a watermark bounds; unless named, the first such column. It is the time, or a
        value derived by `tumble`, `hop`, `bucket`, `truncate` and added constants, also as the key of a group. A row
        whose column is null is never emitted.

        **State** The rows held back.

        **Errors** `CircuitError` when the circuit is planned, if no watermark bounds a column.

        **Example**

        >>> import datetime as dt, dbsp
        >>> t = dbsp.table("t", {"at": dbsp.TIMESTAMP}, watermark={"at": dbsp.seconds(2)})
        >>> counts = t.tumble("at", dbsp.seconds(10)).group_by("window_end").aggregate(n=dbsp.count()).final()
        >>> with dbsp.open(dbsp.circuit("demo", {"counts": counts})) as run:
        ...     run.push("t", [{"at": dt.datetime(2024, 1, 1, 9, 0, second)} for second in (1, 2, 8)])
        ...     print(run.step()["counts"].to_rows())
        ...     run.delete("t", [{"at": dt.datetime(2024, 1, 1, 9, 0, 8)}])
        ...     run.push("t", [{"at": dt.datetime(2024, 1, 1, 9, 0, 13)}])
        ...     print(run.step()["counts"].to_rows())
        ...     print([(str(end.time()), n, w) for (end, n), w in run.step()["counts"].to_rows()])
        []
        []
        [('09:00:10', 2, 1)]
        """
        source = user_line()
        with located(source):
            name = None if column is None else self._name(column)
            if name is not None and name not in self.schema:
                raise missing_column(name, self.schema)
            return self._made(FinalNode(input=self.node, column=name, schema=self.schema, source=source))

    def _window_time(self, what: str, time: str | Expr) -> str:
        """Return the name of the time column; refuse a stream that has columns with the windows' names."""
        name = self._time_column(what, time)
        taken = [bound for bound in (START, END) if bound in self.schema]
        if taken:
            raise CircuitError(f"{what} adds columns that are there: columns={taken}", 'such as .drop("window_start")')
        return name

    def _time_column(self, what: str, time: str | Expr) -> str:
        """Return the name of a timestamp column; raise `CircuitError` for another type or an unknown name."""
        name = self._name(time)
        if name not in self.schema:
            raise missing_column(name, self.schema)
        type_ = self.schema[name].type
        if not pa.types.is_timestamp(type_):
            hint = f'write .with_columns({name}=dbsp.col("{name}").cast(dbsp.TIMESTAMP)) or dbsp.from_epoch before'
            raise CircuitError(f"{what} needs a timestamp column: column={name} type={type_}", hint)
        return name


WINDOWS_MAX = 10_000
