"""The interface for queries: one SELECT over the views as of one step, and its plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from dbsp.circuit.names import DEAD_LETTERS
from dbsp.coordinator.build import Built
from dbsp.coordinator.query.explaining import PLAN_SCHEMA, Explained, explained, plan_table
from dbsp.coordinator.query.listing import columns_query, listing, names_query
from dbsp.coordinator.query.process import Given, Queries, Read, Stop
from dbsp.coordinator.query.pushdown import Needed
from dbsp.coordinator.query.statement import PLAN, QueryLimits
from dbsp.coordinator.serving import reads
from dbsp.coordinator.serving.query_parts import ViewPart, part_of
from dbsp.coordinator.serving.reads import Reads
from dbsp.coordinator.serving.results import OpenResult
from dbsp.coordinator.settings.config import Config
from dbsp.runtime.leases import ALL, Leased, looked_up
from dbsp.zset.schema import schema_of

ANALYZE = "EXPLAIN ANALYZE"
PIECE_ROWS = 65_536
"""The most rows of a piece to which a sieve is applied."""


@dataclass(slots=True)
class _Asked:
    """The options of a query besides the text of its statement."""

    timeout_s: float | None
    relations: Mapping[str, pa.Table] = field(default_factory=dict)
    dialect: Mapping[str, Any] | None = None
    stop: Stop | None = None


class QueryReads(Reads):
    """The methods for queries."""

    def __init__(self, config: Config, built: Built | None = None) -> None:
        """Start no process before the first query."""
        super().__init__(config, built)
        self._queries = Queries(at_once_max=config.query.at_once_max)

    def query(self, sql: str, timeout_s: float | None = None) -> tuple[int, pa.Table]:
        """Return (step, result) of one read-only statement over the views and `dead_letters`, all as of that step.

        The result of `EXPLAIN SELECT …` are the lines of its plan: see `_explain`. `SHOW TABLES` lists the views, and
        `DESCRIBE view` its columns.
        """
        return self._ask(sql, _Asked(timeout_s))

    def query_in_dialect(
        self,
        sql: str,
        dialect: Mapping[str, Any],
        relations: Mapping[str, pa.Table],
        *,
        timeout_s: float | None = None,
        stop: Stop | None = None,
    ) -> pa.Table:
        """Return the result of one statement in PostgreSQL's dialect, over the views and further relations, as of one step.

        `dialect` are the parts of a `dbsp.coordinator.query.dialect.Dialect`. Where it asks for a description, no view is
        read.
        """
        return self._ask(sql, _Asked(timeout_s, relations, dialect, stop))[1]

    def open_query(self, sql: str, timeout_s: float | None = None) -> OpenResult:
        """Return the result of a statement in portions, to be closed; `rows_max` and `result_mb_max` do not count.

        It is to be read within `lease_s` of [query]. Memory does not grow with the result.
        """
        return self._open(sql, _Asked(timeout_s))

    def open_in_dialect(
        self,
        sql: str,
        dialect: Mapping[str, Any],
        relations: Mapping[str, pa.Table],
        *,
        timeout_s: float | None = None,
        stop: Stop | None = None,
    ) -> OpenResult:
        """Return the result of `query_in_dialect` in portions, as `open_query` does."""
        return self._open(sql, _Asked(timeout_s, relations, dialect, stop))

    def _listed(self, sql: str) -> str:
        """Return the SELECT of a statement that lists views or columns; another statement as it is."""
        wanted = listing(sql)
        if wanted is None:
            return sql
        if wanted.view is None:
            return names_query((*self.views(), DEAD_LETTERS))
        known = {name.lower(): name for name in (*self.views(), DEAD_LETTERS)}
        view = known.get(wanted.view.lower(), self.unread.spelled(wanted.view))
        if view == DEAD_LETTERS:
            return columns_query(schema_of(self.letters_table(self.finished_steps()).schema).columns)
        return columns_query(self._schema(view).columns)

    def _open(self, sql: str, asked: _Asked) -> OpenResult:
        sql = self._listed(sql)
        if explained(sql) is not None:
            step, table = self._ask(sql, asked)
            return OpenResult(step, table.schema, None, table)
        steps: list[int] = []
        portions = self._queries.open(
            sql, self._names(asked), self._reader(asked, steps), self._query_limits(asked.timeout_s), self.unread,
            dialect=asked.dialect, stop=asked.stop, ends_s=self.config.query.lease_s,
        )  # fmt: skip
        return OpenResult(steps[0] if steps else self.snapshot.step, portions.schema, portions)

    def _ask(self, sql: str, asked: _Asked) -> tuple[int, pa.Table]:
        sql = self._listed(sql)
        statement = explained(sql)
        describe = asked.dialect is not None and bool(asked.dialect.get("describe"))
        if statement is not None and not describe:
            return self._explain(statement, asked)
        steps: list[int] = []
        read = self._reader(asked, steps, describe=describe)
        found = self._run_query(sql if statement is None else statement.sql, read, asked)
        if statement is not None:
            found = PLAN_SCHEMA.empty_table().replace_schema_metadata(found.schema.metadata)
        return steps[0] if steps else self.snapshot.step, found

    def _reader(self, asked: _Asked, steps: list[int], *, describe: bool = False) -> Read:
        """Return the function that reads the views of a statement; it notes their step in `steps`."""

        @contextmanager
        def read(needed: Mapping[str, Needed]) -> Iterator[Mapping[str, Given]]:
            found = {name: asked.relations[name] for name in needed if name in asked.relations}
            views = {name: each for name, each in needed.items() if name not in asked.relations}
            if describe:
                yield found | self._empty_tables(views)
                return
            with self._tables_of(views, asked.timeout_s, steps) as tables:
                yield found | tables

        return read

    def _names(self, asked: _Asked) -> tuple[str, ...]:
        return (*self.views(), DEAD_LETTERS, *asked.relations)

    def _explain(self, statement: Explained, asked: _Asked) -> tuple[int, pa.Table]:
        """Return (step, plan): what is read of each view as of that step, and DuckDB's plan.

        The plan is made without reading, over tables without rows. `EXPLAIN ANALYZE` reads and runs the statement.
        """
        steps: list[int] = []
        lines: list[str] = []

        @contextmanager
        def read(needed: Mapping[str, Needed]) -> Iterator[Mapping[str, Given]]:
            found: dict[str, Given] = {name: asked.relations[name] for name in needed if name in asked.relations}
            views = {name: each for name, each in needed.items() if name not in {*found, DEAD_LETTERS}}
            parts = self.view_parts(views)
            with ExitStack() as stack:
                if parts:
                    leased = stack.enter_context(self.leases.taken([part.view for part in parts], asked.timeout_s))
                    steps.append(leased.step)
                    for part in self.view_parts(views, leased):
                        to_read = self._to_read(leased, part)
                        lines.append(f"{part.view}: {self._story(leased, to_read)}")
                        if statement.analyze:
                            found[part.view] = self._counted(self._read_part(leased, to_read), lines, len(lines) - 1)
                if DEAD_LETTERS in needed:
                    steps.append(steps[0] if steps else self.finished_steps())
                    lines.append(f"{DEAD_LETTERS}: all rows, all columns")
                    if statement.analyze:
                        found[DEAD_LETTERS] = self.letters_table(steps[0])
                yield self._empty_tables({name: each for name, each in needed.items() if name not in found}) | found

        plan = self._run_query(statement.sql, read, asked, ANALYZE if statement.analyze else PLAN)
        step = steps[0] if steps else self.snapshot.step
        return step, plan_table([f"as of step {step}", *lines, "DuckDB:", *plan.column(0).to_pylist()])

    def _counted(self, given: Given, lines: list[str], line: int) -> Given:
        """Yield the rows of a read; after the last one add their number to the line of the plan."""
        if isinstance(given, pa.Table):
            lines[line] += f"; rows read: {len(given)}"
            return given

        def pieces() -> Iterator[pa.Table]:
            rows = 0
            try:
                for piece in given:
                    rows += len(piece)
                    yield piece
            finally:
                lines[line] += f"; rows read: {rows}"

        return pieces()

    def _story(self, leased: Leased, part: ViewPart) -> str:
        """Return how a part of a view is read, in words."""
        sieve = "" if part.sieve is None else f"; {part.sieve.described()}"
        return f"{self._found_by(leased, part)}{sieve}"

    def _found_by(self, leased: Leased, part: ViewPart) -> str:
        if part.is_whole and leased.size(part.view) <= reads.KEPT_VIEW_BYTES_MAX:
            return f"{part.described()} (a small view: read once for all queries of a step)"
        if part.wanted.all_rows:
            return part.described()
        spec = self._spec_in(leased, part.view)
        key = spec.trace.arrangement.key if spec.trace is not None else ()
        if columns := looked_up(spec, part.wanted):
            return f"{part.described()} (looked up by {', '.join(columns)}, on the workers that own them)"
        return f"{part.described()} (all rows are read and filtered: the view's key is {', '.join(key) or 'the row'})"

    def _run_query(self, sql: str, read: Any, asked: _Asked, explain: str | None = None) -> pa.Table:
        names = self._names(asked)
        limits = self._query_limits(asked.timeout_s)
        return self._queries.ask(
            sql, names, read, limits, self.unread, dialect=asked.dialect, stop=asked.stop, explain=explain
        )

    def _empty_tables(self, needed: Mapping[str, Needed]) -> dict[str, pa.Table]:
        """Return tables without rows that have the columns of these views."""
        letters = (
            {DEAD_LETTERS: self.letters_table(self.finished_steps()).slice(0, 0)} if DEAD_LETTERS in needed else {}
        )
        return letters | {name: self._schema(name).to_arrow().empty_table() for name in needed if name != DEAD_LETTERS}

    @contextmanager
    def _tables_of(
        self, parts: Mapping[str, Needed], timeout_s: float | None, steps: list[int]
    ) -> Iterator[dict[str, Given]]:
        """Yield the tables of a query, all as of the same step, which is noted in `steps`."""
        views = {name: each for name, each in parts.items() if name != DEAD_LETTERS}
        with self._parts_of(views, timeout_s, steps) as tables:
            if DEAD_LETTERS in parts:
                steps.append(steps[0] if steps else self.finished_steps())
                tables[DEAD_LETTERS] = self.letters_table(steps[0])
            yield tables

    @contextmanager
    def _parts_of(
        self, needed: Mapping[str, Needed], timeout_s: float | None, steps: list[int]
    ) -> Iterator[dict[str, Given]]:
        """Yield the rows of several views that a query reads, all as of the same step; pieces are read in the block."""
        parts = self.view_parts(needed)
        kept = [rows for part in parts if self._may_share(part) and (rows := self.kept(part.view)) is not None]
        if not parts or (len(kept) == len(parts) and len({rows.step for rows in kept}) == 1):
            steps.extend(rows.step for rows in kept)
            yield {rows.view: rows.table for rows in kept}
            return
        with self.leases.taken([part.view for part in parts], timeout_s) as leased:
            steps.append(leased.step)
            read = [self._to_read(leased, part) for part in self.view_parts(needed, leased)]
            yield {part.view: self._read_part(leased, part) for part in read}

    def view_parts(self, needed: Mapping[str, Needed], leased: Leased | None = None) -> list[ViewPart]:
        """Return what is read of the views of a statement; their columns are those in the lease, if there is one."""
        specs = {view: self._spec(view) if leased is None else self._spec_in(leased, view) for view in needed}
        schemas = {view: spec.schema for view, spec in specs.items()}
        known = frozenset(name.lower() for schema in schemas.values() for name in schema.names)
        return [part_of(view, each, schemas[view], known) for view, each in needed.items()]

    def _may_share(self, part: ViewPart, leased: Leased | None = None) -> bool:
        """Return whether a query may read all of the view instead of this part: no row of the part is looked up."""
        spec = self._spec(part.view) if leased is None else self._spec_in(leased, part.view)
        return part.wanted.all_rows or not looked_up(spec, part.wanted)

    def _to_read(self, leased: Leased, part: ViewPart) -> ViewPart:
        """Return the part to read: the whole view if it is small and no row is looked up, because later queries share it.

        A few rows that are looked up need no sieve.
        """
        share = self._may_share(part, leased)
        if share and leased.size(part.view) <= reads.KEPT_VIEW_BYTES_MAX:
            return ViewPart(view=part.view, wanted=ALL)
        few = not share and (part.sieve is None or part.sieve.first is None)
        return replace(part, sieve=None) if few else part

    def _read_part(self, leased: Leased, part: ViewPart) -> Given:
        """Read a part of a view; with a sieve the pieces are read when they are asked for."""
        if part.is_whole:
            return self._whole(leased, part.view).table
        if part.sieve is not None:
            return _pieces(leased, part)
        tables: list[pa.Table] = []
        rows = 0
        for table in leased.read(part.view, replace(part.wanted, first=part.rows_max)):
            tables.append(table)
            weights = table.column(table.num_columns - 1).to_numpy()
            rows += int(weights[weights > 0].sum())  # SQL has no rows of negative weight
            if part.rows_max is not None and rows >= part.rows_max:
                break
        return pa.concat_tables(tables)

    def _query_limits(self, timeout_s: float | None = None) -> QueryLimits:
        section = self.config.query
        return QueryLimits(
            memory_mb_max=section.memory_mb_max, timeout_s=min(section.timeout_s, timeout_s or section.timeout_s),
            threads=section.threads, rows_max=section.rows_max, result_mb_max=section.result_mb_max,
        )  # fmt: skip


def _pieces(leased: Leased, part: ViewPart) -> Iterator[pa.Table]:
    """Yield the wanted rows in pieces of a bounded size."""
    for table in leased.read(part.view, part.wanted):
        for first in range(0, max(1, len(table)), PIECE_ROWS):
            yield table.slice(first, PIECE_ROWS)
