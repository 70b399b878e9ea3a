"""Ad-hoc SQL over the views: one read-only statement, no access to anything else, limited in time and memory.

A fresh DuckDB in memory gets the needed views as tables. It is then closed up: no files, no network, no extensions, no
Python variables, no settings. Before that the statement is checked on DuckDB's own parse. It must be exactly one
SELECT, which reads only views and a few harmless table functions. Other table functions take raw addresses or SQL as
text.

A query sees all its views as of one step, and no history. Module `dbsp.coordinator.query.process` provides the process
in which this runs, where the system limits the memory and time that DuckDB does not count.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from dbsp.circuit.names import DEAD_LETTERS
from dbsp.coordinator.query.explaining import plan_table
from dbsp.coordinator.query.listing import LIST_VIEWS
from dbsp.coordinator.query.pushdown import Needed, needed_parts, only_selects
from dbsp.coordinator.query.quoting import identifier
from dbsp.coordinator.query.result_types import readable
from dbsp.coordinator.query.sieve import sieves_of
from dbsp.errors import CapacityError, ConfigError, InternalError
from dbsp.settings import similar

TABLE_FUNCTIONS = frozenset({"range", "generate_series", "unnest"})
RECURSIVE = "RECURSIVE_CTE_NODE"
QUERY_NODES = frozenset({"SELECT_NODE", "SET_OPERATION_NODE", RECURSIVE})
PORTION_ROWS = 16_384
"""The most rows in one portion of a result."""
STATEMENT_CHARS_MAX = 100_000
WEIGHT = "weight"
CATALOGS = ("pg_catalog.", "information_schema.")
"""The prefixes of relations that are no views."""
PARAMETERS = b"parameters"
"""The key of the parameters' types in the metadata of a statement's description."""
UNSOUND_REWRITES = "common_subplan"
"""Optimizers of DuckDB 2.0.0 that are switched off, because they give wrong results.

Two parts of a UNION ALL that read different columns of the same join may get each other's (duckdb/duckdb#25819 and similar).
"""
EMPTY_REWRITES = "statistics_propagation,empty_result_pullup"
"""Optimizers that remove the reads of empty tables. They are off for EXPLAIN, whose plan is made over empty tables."""
CANDIDATES_MAX = 5
_CANDIDATE = "\t"
PLAN = "EXPLAIN"
NO_ROWS = "~0 rows"
_ONLY_NO_ROWS = re.compile(rf"\W*({NO_ROWS}\W*)+")
_CLOSED = (
    "SET enable_external_access = false",
    "SET python_enable_replacements = false",
    "SET autoinstall_known_extensions = false",
    "SET autoload_known_extensions = false",
    "SET allow_community_extensions = false",
    "SET lock_configuration = true",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryLimits:
    """The limits of one query."""

    memory_mb_max: int = 512
    timeout_s: float = 10.0
    threads: int = 1
    rows_max: int = 1_000_000
    result_mb_max: int = 128


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Names of the circuit without rows that a query can read: views whose changes alone are stored, and tables."""

    views: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()

    def spelled(self, name: str) -> str:
        """Return a name as the circuit spells it, or as it is where the circuit has none."""
        return {known.lower(): known for known in (*self.tables, *self.views)}.get(name.lower(), name)


READABLE_ALL = Unreadable()
ADD_VIEW = "create materialized view all_{0} as select * from {0}"


def not_readable(view: str, views: Sequence[str], unread: Unreadable) -> ConfigError:
    """Return the error for a name that cannot be read: unknown, or one of `unread`."""
    shown = sorted(name for name in views if name != DEAD_LETTERS and not name.startswith(CATALOGS))
    if view not in unread.views and view in unread.tables:
        return ConfigError(
            f"no such view, but a table, whose rows are not kept: table={view} views={shown}",
            f"read a view, or add one of all rows: `{ADD_VIEW.format(view)}` (in Python name the table in `views`)",
        )
    if view not in unread.views:
        return ConfigError(f"no such view: view={view} views={shown}", similar(view, shown))
    hint = f"`coordinator changes {view}` tells what every step changed in it"
    if view == DEAD_LETTERS:
        hint = "`coordinator dead-letters` lists them, and SQL reads them: SELECT * FROM dead_letters"
    else:
        hint += "; to read its rows write `create materialized view` (in Python name it in `materialize`)"
    return ConfigError(f"there is such a view, but it is not materialized: view={view} views={shown}", hint)


def views_of(sql: str, views: Sequence[str]) -> tuple[str, ...]:
    """Check that a statement is one SELECT over these views alone, and return those that it reads.

    **Errors** `ConfigError` says what is wrong with the statement.
    """
    return tuple(parts_of(sql, views))


def parts_of(sql: str, views: Sequence[str], unread: Unreadable = READABLE_ALL) -> dict[str, Needed]:
    """Check a statement as `views_of` does; return its views, each with the part that it needs."""
    _refuse_no_text(sql)
    if len(sql) > STATEMENT_CHARS_MAX:
        raise CapacityError(f"the statement is too long: chars={len(sql)} chars_max={STATEMENT_CHARS_MAX}")
    with duckdb.connect(":memory:", config={"threads": 1}) as connection:
        _close_up(connection)
        _check_kind(connection, sql)
        text = connection.execute("SELECT json_serialize_sql(?)", [sql]).fetchall()[0][0]
        try:
            tree = json.loads(text)
            nodes = list(_walk(tree))
        except RecursionError:
            raise ConfigError("the statement is nested too deep to be checked", "write it with fewer levels") from None
        if tree.get("error"):
            raise ConfigError(f"the statement cannot be parsed: {tree.get('error_message')}", "write one SELECT")
        _check_functions(nodes)
        statement, trees = tree["statements"][0]["node"], [node.tree for node in nodes]
        found = needed_parts(statement, trees, _tables(nodes, views, unread))
        sieves = sieves_of(statement, only_selects(trees, tuple(found)), connection)
    return {view: replace(each, sieve=sieves.get(view)) for view, each in found.items()}


@contextmanager
def sifting_connection(limits: QueryLimits, prelude: Sequence[str]) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield a closed DuckDB without tables, in which sieves run as the statement itself would."""
    with _connected({}, limits, (), prelude) as connection:
        yield connection


def run_query(
    sql: str,
    tables: Mapping[str, pa.Table],
    limits: QueryLimits,
    names: Sequence[str] | None = None,
    prelude: Sequence[str] = (),
    *,
    describe: bool = False,
    explain: str | None = None,
) -> pa.Table:
    """Return the statement's result over these tables; rows are repeated by the last column `weight` of a view.

    `names` are the views that `parts_of` found, if the statement was checked already. `prelude` are statements of our own
    that come before, such as those that make macros. With `describe` the result has the columns of the statement and no
    row; nothing runs. With `explain`, "EXPLAIN" or "EXPLAIN ANALYZE", the result are the lines of DuckDB's plan.

    **Errors** `ConfigError` for what DuckDB refuses; `CapacityError` names the limit that was reached.
    """
    names = views_of(sql, tuple(tables)) if names is None else names
    if not describe and explain is None:
        return _whole(stream_query(sql, tables, limits, names, prelude), limits)
    with (
        _refused(limits),
        _connected(tables, limits, names, prelude, explain) as connection,
        _timed(connection, limits),
    ):
        if explain is not None:
            return _plan(connection, sql, explain)
        relation = readable(connection, sql)
        return relation.limit(0).to_arrow_table().rename_columns(relation.columns)


def stream_query(
    sql: str,
    tables: Mapping[str, pa.Table],
    limits: QueryLimits,
    names: Sequence[str],
    prelude: Sequence[str] = (),
) -> Iterator[pa.RecordBatch]:
    """Yield the statement's result in portions, as DuckDB makes them; at least one.

    `rows_max` and `result_mb_max` do not count. The time limit counts for each portion by itself. See `run_query`.
    """
    with _refused(limits), _connected(tables, limits, names, prelude) as connection:
        with _timed(connection, limits):
            reader = readable(connection, sql).to_arrow_reader(PORTION_ROWS)
            batch = next(reader, None)
        if batch is None:
            yield pa.RecordBatch.from_pylist([], schema=reader.schema)
        while batch is not None:
            yield batch
            with _timed(connection, limits):
                batch = next(reader, None)


@contextmanager
def _refused(limits: QueryLimits) -> Iterator[None]:
    """Raise the errors of DuckDB in the body as those of a query."""
    try:
        yield
    except duckdb.InterruptException:
        hint = "ask for less, or raise `timeout_s` in [query]"
        raise CapacityError(f"the query took too long: timeout_s={limits.timeout_s}", hint) from None
    except duckdb.OutOfMemoryException:
        hint = "ask for less, or raise `memory_mb_max` in [query]"
        raise CapacityError(f"the query needs too much memory: memory_mb_max={limits.memory_mb_max}", hint) from None
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        raise ConfigError(f"the query failed: {_story(error)}") from None


@contextmanager
def _connected(
    tables: Mapping[str, pa.Table],
    limits: QueryLimits,
    names: Sequence[str],
    prelude: Sequence[str],
    explain: str | None = None,
) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield a DuckDB that has the views as tables, and is closed up."""
    config: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": f"{limits.memory_mb_max}MB",
        "threads": limits.threads,
        "temp_directory": "",
        "disabled_optimizers": UNSOUND_REWRITES if explain != PLAN else f"{UNSOUND_REWRITES},{EMPTY_REWRITES}",
    }
    with duckdb.connect(":memory:", config=config) as connection:
        with _timed(connection, limits):
            for number, name in enumerate(names):
                connection.register(f"__input_{number}", repeat_by_weight(tables[name]))
                connection.execute(f"CREATE TABLE {_quoted(name)} AS SELECT * FROM __input_{number}")  # noqa: S608 - our own names
                connection.unregister(f"__input_{number}")
            for own in prelude:
                connection.execute(own)
            _close_up(connection)
        yield connection


@contextmanager
def _timed(connection: duckdb.DuckDBPyConnection, limits: QueryLimits) -> Iterator[None]:
    """Interrupt DuckDB if the body takes longer than the time limit."""
    timer = threading.Timer(limits.timeout_s, connection.interrupt)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def repeat_by_weight(table: pa.Table) -> pa.Table:
    """Convert a Z-set to SQL rows: repeat each row by its weight, and drop rows of negative weight."""
    if WEIGHT not in table.column_names:
        return table
    at = table.schema.get_all_field_indices(WEIGHT)[-1]
    weights = np.maximum(table.column(at).to_numpy(), 0)
    rows = table.remove_column(at)
    if (weights == 1).all():
        return rows
    return rows.take(pa.array(np.repeat(np.arange(len(weights)), weights)))


def _plan(connection: duckdb.DuckDBPyConnection, sql: str, explain: str) -> pa.Table:
    """Return the lines of DuckDB's plan; a plan over empty tables says nothing of numbers of rows, which it cannot know."""
    text = connection.execute(f"{explain} {sql}").fetchall()[-1][1]  # the statement was checked to be one SELECT
    lines = [line.rstrip() for line in str(text).splitlines()]
    if explain == PLAN:
        lines = [line.replace(NO_ROWS, " " * len(NO_ROWS)) for line in lines if not _ONLY_NO_ROWS.fullmatch(line)]
    return plan_table(lines)


def _whole(batches: Iterator[pa.RecordBatch], limits: QueryLimits) -> pa.Table:
    """Return all portions as a table; raise `CapacityError` where they are more than the limits allow."""
    found: list[pa.RecordBatch] = []
    rows, size = 0, 0
    for batch in batches:
        rows += batch.num_rows
        if rows > limits.rows_max:
            hint = "add a LIMIT, or raise `rows_max` in [query]"
            raise CapacityError(f"the query gives too many rows: rows_max={limits.rows_max}", hint)
        size += batch.nbytes
        if size > limits.result_mb_max << 20:
            hint = "ask for less, or raise `result_mb_max` in [query]"
            raise CapacityError(f"the query's result is too large: result_mb_max={limits.result_mb_max}", hint)
        found.append(batch)
    return pa.Table.from_batches(found)


def _close_up(connection: duckdb.DuckDBPyConnection) -> None:
    for setting in _CLOSED:
        connection.execute(setting)


def _story(error: Exception) -> str:
    """Return the message of DuckDB or Arrow in one line, without the line of signs that points into the statement.

    DuckDB names all functions of a name that may be meant: there are a hundred for `+`. The first ones are kept.
    """
    lines = [line for line in str(error).splitlines() if line.strip(" ^~")]
    candidates = [place for place, line in enumerate(lines) if line.startswith(_CANDIDATE)]
    left_out = frozenset(candidates[CANDIDATES_MAX:])
    told = " ".join(line for place, line in enumerate(lines) if place not in left_out)
    return " ".join(told.split()) + (f" … and {len(left_out)} more" if left_out else "")


HINTS = dict.fromkeys(("show", "describe", "desc", "summarize", "pragma"), LIST_VIEWS)
"""The hint for a statement that other databases have, by its first word."""


def _check_kind(connection: duckdb.DuckDBPyConnection, sql: str) -> None:
    words = sql.split()
    if words and (hint := HINTS.get(words[0].lower())) is not None:
        raise ConfigError(f"only SELECT is allowed: statement={' '.join(words)[:60]}", hint)
    try:
        statements = connection.extract_statements(sql)
    except duckdb.Error as error:
        raise ConfigError(f"not SQL: {_story(error)}", "write one SELECT in DuckDB's dialect") from None
    if len(statements) != 1:
        raise ConfigError(f"exactly one statement is allowed: statements={len(statements)}", "send them one by one")
    if statements[0].type != duckdb.StatementType.SELECT:
        kind = str(statements[0].type).rpartition(".")[2]
        raise ConfigError(f"only SELECT is allowed: statement={kind}", "views are changed by pushing rows to tables")


@dataclass(frozen=True, slots=True)
class _Node:
    """An object of a parse tree, and the names of the common table expressions that it may read."""

    tree: Mapping[str, Any]
    names: frozenset[str]


def _refuse_no_text(sql: str) -> None:
    """Raise `ConfigError` for a lone surrogate, which JSON can express but UTF-8 cannot."""
    try:
        sql.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(
            f"the statement holds half of a character: place={error.start} code={ord(sql[error.start]):#06x}",
            "send UTF-8, or both halves of the character",
        ) from None


def _walk(tree: Any) -> Iterator[_Node]:
    """Yield every object of a parse tree, with the names in its scope.

    A common table expression is visible to those that follow it in its `WITH`, and to all parts of the query of the
    `WITH`. It is visible to itself only if it is recursive.
    """
    stack: list[tuple[Any, frozenset[str]]] = [(tree, frozenset())]
    while stack:
        found, names = stack.pop()
        if isinstance(found, list):
            stack.extend((each, names) for each in found)
        elif isinstance(found, Mapping):
            if found.get("type") == RECURSIVE:
                names |= {str(found.get("cte_name")).lower()}
            for entry in (found.get("cte_map") or {}).get("map", []):
                stack.append((entry.get("value"), names))
                names |= {str(entry.get("key")).lower()}
            yield _Node(found, names)
            stack.extend((value, names) for key, value in found.items() if key != "cte_map")


def _check_functions(nodes: Sequence[_Node]) -> None:
    for node in (each.tree for each in nodes):
        if node.get("type") == "TABLE_FUNCTION":
            name = str((node.get("function") or {}).get("function_name", "")).lower()
            if name not in TABLE_FUNCTIONS:
                raise ConfigError(
                    f"not allowed in a query: function={name}", f"allowed: {', '.join(sorted(TABLE_FUNCTIONS))}"
                )
        kind = str(node.get("type"))
        if kind == "SHOW_REF" or (kind.endswith("_NODE") and kind not in QUERY_NODES):
            raise ConfigError(f"only SELECT is allowed: part={kind}")


def _tables(nodes: Sequence[_Node], views: Sequence[str], unread: Unreadable) -> tuple[str, ...]:
    """Return the views that are read; every other name must be a common table expression in scope."""
    known = {view.lower(): view for view in views}
    found: dict[str, None] = {}
    for node in nodes:
        if node.tree.get("type") != "BASE_TABLE":
            continue
        schema, name = node.tree.get("schema_name"), str(node.tree.get("table_name"))
        if schema or node.tree.get("catalog_name"):
            raise ConfigError(f"write the view's name alone: table={schema}.{name}")
        if name.lower() in known:
            found[known[name.lower()]] = None
        elif name.lower() not in node.names:
            raise not_readable(unread.spelled(name), views, unread)
    return tuple(found)


def _quoted(name: str) -> str:
    if "\0" in name:
        raise InternalError(f"a view's name holds a null byte: view={name!r}")
    return identifier(name)
