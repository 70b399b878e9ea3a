"""Decides which state of a stored pipeline is kept under another circuit, what is backfilled, and what is refused.

A trace is kept if one of the same signature is stored; their numbers may differ. New traces and views are backfilled
(`dbsp.plan.backfill`). A view is identified by its name and the signature of its definition. So an edited view is a new view
under an old name. It is backfilled from the beginning. Its followers are notified that it begins anew, or its first step
retracts the old rows (record 0047).
No I/O: the coordinator and `dbsp.open` decide by this module. Source: design records 0024 and 0047.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TypeVar

from dbsp.algebra.table import Table
from dbsp.circuit.fingerprint import NodeToken, node_tokens
from dbsp.errors import CircuitError
from dbsp.logs import Range
from dbsp.plan.backfill import Backfill, Missing, Modes, depends_on_time, modes
from dbsp.plan.plan import Plan
from dbsp.plan.signatures import Signatures, declaration, meanings, rows_of_tables, signatures, views_as_before
from dbsp.steps.timing import Timing
from dbsp.store import TraceSpec
from dbsp.trace.relabel import Narrowed
from dbsp.zset.schema import Arrangement, Column, Schema

T = TypeVar("T")
KEEP = "nothing was changed: put the circuit back, or correct the new one"
NO_LOGS: Mapping[str, tuple[Range, ...]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class CircuitChange:
    """The change from one circuit to another.

    `kept` maps each new trace that is kept to its old number; `watermarks` maps old numbers to new ones. The traces `narrowed`
    are kept with other columns than are stored. `views_edited` have the name of an old view and another definition.
    """

    views_kept: tuple[str, ...]
    views_edited: tuple[str, ...]
    views_added: tuple[str, ...]
    views_dropped: tuple[str, ...]
    tables_added: tuple[str, ...]
    tables_dropped: tuple[str, ...]
    columns_added: tuple[str, ...]
    columns_filled: tuple[str, ...]
    kept: Mapping[int, int]
    narrowed: tuple[Narrowed, ...]
    filled: tuple[str, ...]
    sources: tuple[str, ...]
    dropped: int
    watermarks: Mapping[int, int]
    backfill: Backfill

    @property
    def needs_backfill(self) -> bool:
        """Return whether there is any trace or view to backfill."""
        return bool(self.filled or self.backfill.views)

    def timing(self, timing: Timing) -> Timing:
        """Return the state of time, with the waterlines of kept watermarks under their new numbers."""

        def kept(lines: Mapping[int, T]) -> dict[int, T]:
            return {self.watermarks[node]: at for node, at in lines.items() if node in self.watermarks}

        return replace(timing, used=kept(timing.used), agreed=kept(timing.agreed), reached=kept(timing.reached))

    def as_text(self) -> str:
        """Return the change as text for the user, one fact per line."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        for names, text in (
            (self.views_kept, "views kept: {}"),
            (self.views_edited, "views edited: {}; each is filled anew"),
            (self.views_added, "views added: {}; their first output is their whole content"),
            (self.views_dropped, "views dropped: {}; what they have put out stays where it is"),
            (self.tables_added, "tables added: {}"),
            (self.tables_dropped, "tables dropped: {}"),
            (self.columns_added, "columns added: {}; old rows are null there"),
            (self.columns_filled, "columns added: {}; old rows have the default there"),
        ):
            if names:
                yield text.format(", ".join(names))
        kept = len(self.kept) + len(self.narrowed)
        yield f"traces: {kept} kept, {len(self.filled)} filled, {self.dropped} dropped"
        for each in self.narrowed:
            yield f"  kept with other columns: table {each.table.name}"
        for line, count in Counter(self.filled).items():
            yield f"  filled: {line}" + (f" ({count} traces)" if count > 1 else "")
        if self.sources:
            yield f"filled from what is kept of: {'; '.join(self.sources)}"
        rows: Counter[str] = Counter()
        for range_ in self.backfill.past:
            rows[range_.table] += range_.last - range_.first
        if rows:
            yield f"filled from the input log of: {', '.join(f'{table} ({count:,} rows)' for table, count in rows.items())}"


def change(
    old: Signatures,
    plan: Plan,
    fresh: frozenset[str] = frozenset(),
    logged: Mapping[str, tuple[Range, ...]] = NO_LOGS,
    nodes: Sequence[NodeToken] = (),
) -> CircuitChange:
    """Return the change that starting the pipeline of `old` with this plan would make.

    `fresh` are tables to which no row was ever pushed. Tables in `logged` may be backfilled from these rows of the input log, all
    that steps have read of them. Where stored state has the same rows, the state is read instead. `nodes` are those of the old
    circuit, as `node_tokens` returned them: errors show their labels.
    **Errors** `CircuitError` names what is impossible, and what to do.
    """
    new = signatures(plan)
    before = _widened(old, plan)
    _refuse_other(old, new, fresh, frozenset(before), lambda name: _declarations(name, nodes, plan))
    _refuse_watermarks(old, new, plan)
    meaning = meanings(plan, before)
    views = views_as_before(plan, before)
    kept = {number: old.traces[signature] for number, signature in meaning.traces.items() if signature in old.traces}
    made = frozenset(name for name, signature in views.items() if old.views.get(name) != signature)
    _refuse_wider(old, plan, fresh.union(logged), before)
    narrowed = tuple(_narrowed(old, plan, kept, before))
    there = frozenset(kept) | {each.new.id for each in narrowed}
    backfill = Backfill(
        kept=there, views=made, fresh=fresh.intersection(new.tables),
        known=frozenset(node.id for node in plan.nodes if meaning.nodes[node.id] in old.nodes),
    )  # fmt: skip
    found = modes(plan, backfill)
    lacking = {each.table for each in found.missing}
    if past := tuple(range_ for table, ranges in sorted(logged.items()) if table in lacking for range_ in ranges):
        backfill = replace(backfill, past=past)
        found = modes(plan, backfill)
    if found.missing:
        raise _refusal(plan, found.missing[0], made)
    return CircuitChange(
        views_kept=tuple(name for name in new.views if name not in made),
        views_edited=tuple(name for name in new.views if name in made and name in old.views),
        views_added=tuple(name for name in new.views if name not in old.views),
        views_dropped=tuple(name for name in old.views if name not in new.views),
        tables_added=tuple(name for name in new.tables if name not in old.tables),
        tables_dropped=tuple(name for name in old.tables if name not in new.tables),
        columns_added=_names_added(plan, before, with_default=False),
        columns_filled=_names_added(plan, before, with_default=True),
        kept=kept, narrowed=narrowed, filled=tuple(_filled(plan, there)), sources=tuple(_sources(plan, found)),
        dropped=len(old.traces) - len(there), backfill=backfill,
        watermarks={old.watermarks[each]: number for each, number in new.watermarks.items()},
    )  # fmt: skip


def _widened(old: Signatures, plan: Plan) -> dict[str, Table]:
    """Return the tables as they were declared before columns were added after all others, nullable or with a default."""
    found = {}
    for table in plan.tables:
        columns = table.schema.columns
        while table.name in old.tables and len(columns) > 1 and table.may_lack(columns[-1]):
            columns = columns[:-1]
            was = _without(table, columns)
            if declaration(was) == old.tables[table.name]:
                found[table.name] = was
                break
    return found


def _without(table: Table, columns: tuple[Column, ...]) -> Table:
    """Return the table with these columns alone, and with their defaults."""
    names = {column.name for column in columns}
    return replace(table, schema=Schema(columns), defaults=tuple(each for each in table.defaults if each[0] in names))


def _added(plan: Plan, before: Mapping[str, Table], name: str) -> tuple[str, ...]:
    """Return the columns that were added to a table."""
    return _table(plan, name).schema.names[len(before[name].schema) :] if name in before else ()


def _table(plan: Plan, name: str) -> Table:
    return next(table for table in plan.tables if table.name == name)


def _names_added(plan: Plan, before: Mapping[str, Table], *, with_default: bool) -> tuple[str, ...]:
    """Return the added columns that have a default, or those that have none, as `table.column`."""
    added = ((name, column) for name in before for column in _added(plan, before, name))
    return tuple(
        f"{name}.{column}" for name, column in added if (_table(plan, name).default(column) is not None) == with_default
    )


def _narrowed(
    old: Signatures, plan: Plan, kept: Mapping[int, int], before_of: Mapping[str, Table]
) -> Iterator[Narrowed]:
    """Yield the traces of tables' rows of which fewer columns are needed now, or of which added columns are needed.

    Each key has one row, so dropping columns never makes two rows one.
    """
    for name, trace in rows_of_tables(plan).items():
        if trace.id in kept or name not in old.rows:
            continue
        number, columns = old.rows[name]
        if set(trace.arrangement.schema.names) <= {*columns, *_added(plan, before_of, name)}:
            table = _table(plan, name)
            before = Arrangement(schema=table.schema.select(columns), key=table.primary_key)
            yield Narrowed(table=table, old=TraceSpec(id=number, arrangement=before), new=trace)


# --- refusals -------------------------------------------------------------------------------------------------------


def _refuse_other(
    old: Signatures, new: Signatures, fresh: frozenset[str], widened: frozenset[str], shown: Callable[[str], str]
) -> None:
    """Raise `CircuitError` if the error policy differs, or the declaration of a table that is not `widened`.

    `shown` returns both declarations of a table. A new table is refused too if rows were pushed to it before it was in the
    circuit.
    """
    if old.error_policy != new.error_policy:
        story = f"before={old.error_policy} now={new.error_policy}"
        raise CircuitError(f"the error policy of a circuit with state cannot be changed: {story}", KEEP)
    for name, signature in new.tables.items():
        if name in old.tables and old.tables[name] != signature and name not in widened:
            raise CircuitError(
                f"the declaration of a table does not fit its kept rows: table={name}{shown(name)}",
                "put its declaration back; only columns that may be null or have a default may be added, after the others;"
                " the default of a column stays, as its rows were filled with it",
            )
        if name not in old.tables and name not in fresh:
            raise CircuitError(
                f"rows arrived in a new table before the circuit had it, and not all of them are kept: table={name}",
                "give the new table another name",
            )


def _declarations(name: str, nodes: Sequence[NodeToken], plan: Plan) -> str:
    """Return the old and the new declaration of a table as parts of an error; empty if they are not known, or look alike."""
    before, now = (
        next((label.rpartition(" at ")[0] or label for label, _ in found if label.startswith(f"table {name} (")), None)
        for found in (nodes, node_tokens(plan.circuit))
    )
    if before is None or now is None or before == now:
        return ""
    return f" before={before.removeprefix(f'table {name} ')} now={now.removeprefix(f'table {name} ')}"


def _refuse_wider(old: Signatures, plan: Plan, readable: frozenset[str], before: Mapping[str, Table]) -> None:
    """Raise `CircuitError` if the plan needs columns of a table's rows that were not kept.

    Of a table with a primary key, only the columns that some view reads are kept. A table in `readable` can be read again
    as a whole.
    """
    for name, trace in rows_of_tables(plan).items():
        columns = old.rows[name][1] if name in old.rows else ()
        added = _added(plan, before, name)
        wanted = [column for column in trace.arrangement.schema.names if column not in (*columns, *added)]
        if columns and wanted and name not in readable:
            raise CircuitError(
                "a new view reads columns of a table that no view has read, so their earlier values are not kept:"
                f" table={name} columns={','.join(wanted)} kept={','.join(columns)}",
                "leave them out; a materialized view of the whole table, had it been there from the start, would have kept them,"
                " and so would an input log that keeps all rows",
            )


def _refuse_watermarks(old: Signatures, new: Signatures, plan: Plan) -> None:
    """Raise `CircuitError` for a new watermark, which has not seen the rows of the past."""
    for signature, number in new.watermarks.items():
        if signature not in old.watermarks:
            raise _refusal(plan, Missing(node=number, table=None, views=()))


def _refusal(plan: Plan, missing: Missing, made: frozenset[str] = frozenset()) -> CircuitError:
    """Return the error for a node whose past is not available; name the new views that need it, or else all that do."""
    node = plan.nodes[missing.node]
    names = [name for name in missing.views if name in made] or missing.views
    views = f" views={','.join(names)}" if names else ""
    line = f" line={node.source}" if node.source is not None else ""
    if missing.table is not None:
        return CircuitError(
            f"a new view needs all earlier rows of a table, and they are not kept: table={missing.table}{views}",
            "rows are kept where the table has a primary key or a materialized view of the whole table from the start, or where"
            " the input log has all of them ([checkpoint] retention_s, a topic that keeps all); for this view start over with"
            " another data_dir",
        )
    if depends_on_time(node):
        return CircuitError(
            f"a node that depends on when rows arrived cannot be computed later: node={node.name}{views}{line}",
            "leave it out of the new view, or start over with another data_dir",
        )
    return CircuitError(
        f"a new view needs all earlier rows of a node, and they are not kept: node={node.name}{views}{line}",
        "have a materialized view of it from the start; for this view start over with another data_dir",
    )


# --- telling --------------------------------------------------------------------------------------------------------


def _filled(plan: Plan, kept: frozenset[int]) -> Iterator[str]:
    """Yield a line for each trace to backfill: the node or the view that keeps it."""
    bodies = [node for loop in plan.loops for node in loop.body.nodes]
    for node in (*plan.nodes, *bodies):
        yield from (f"{node.name}: {node.operator}" for trace in node.own if trace.id not in kept)
    for view in plan.views:
        if view.integrates and view.trace is not None and view.trace.id not in kept:
            yield f"view {view.name}"


def _sources(plan: Plan, found: Modes) -> Iterator[str]:
    """Yield a line for each node whose kept rows the backfill reads."""
    for number in sorted(found.known):
        node = plan.nodes[number]
        yield f"{node.name}: {node.operator}"
