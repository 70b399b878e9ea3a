"""Scripts: CREATE TABLE, CREATE VIEW and SET statements, which make a circuit."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from sqlglot import exp

from dbsp.circuit.build import ERROR_POLICIES, circuit
from dbsp.circuit.circuit import Circuit
from dbsp.diagnostics.source_lines import SourceLine, written_at
from dbsp.errors import CircuitError
from dbsp.expr.build import lit
from dbsp.expr.names import nearest
from dbsp.sql.constant_rows import constant_value
from dbsp.sql.errors import Script, about, offset_of, refuse, reported
from dbsp.sql.intervals import interval
from dbsp.sql.queries import rows_of
from dbsp.sql.relations import with_names
from dbsp.sql.scope import QueryRows
from dbsp.sql.types import column_type
from dbsp.stream.stream import Stream
from dbsp.stream.table import table
from dbsp.zset.schema import Column

SORTED_BY = "sorted_by"
_CONSTRAINTS = frozenset(["NotNullColumnConstraint", "PrimaryKeyColumnConstraint", "DefaultColumnConstraint"])
_PUSHED = "tables change by what is pushed; a script has CREATE TABLE, CREATE VIEW and SET"
_OPTIONS = "there are append_only = true and watermark = 'at 5 minutes'"


def circuit_of(
    name: str, script: Script, statements: Sequence[Any], error_policy: str, source: SourceLine | None
) -> Circuit:
    """Return the circuit of a script; refuse a script without a view.

    Each node of the circuit records the line of its statement, if the script is read from a file.
    """
    made = Made(error_policy)
    with reported(script, source):
        for node in statements:
            line = SourceLine(script.file, script.place(offset_of(node))[0]) if script.file else source
            written_at(line, partial(made.take, node))
        if not made.views:
            where = f" at={script.file}" if script.file else ""
            raise CircuitError(f"the script has no view{where}", "write create materialized view v as select …")
        with about(statements[-1]):
            return circuit(
                name,
                made.views,
                materialize=made.materialized,
                error_policy=made.error_policy,
                sorted_by=made.sorted_by,
            )


class Made:
    """The tables, views and settings that a script's statements have made so far."""

    def __init__(self, error_policy: str) -> None:
        """Start without tables and views."""
        self.known: dict[str, QueryRows] = {}
        self.views: dict[str, Stream] = {}
        self.materialized: set[str] = set()
        self.sorted_by: dict[str, tuple[str, ...]] = {}
        self.error_policy = error_policy

    def take(self, node: Any) -> None:
        """Add the result of the next statement; refuse a kind of statement that scripts do not have."""
        if isinstance(node, exp.Set):
            self._set(node)
        elif isinstance(node, exp.Create) and node.kind == "TABLE" and isinstance(node.this, exp.Schema):
            if node.args.get("replace"):
                refuse(node, "a table keeps its rows: it cannot be replaced", "write create table")
            self._name(node, node.this.this.name, _table(node))
        elif isinstance(node, exp.Create) and node.kind == "VIEW":
            self._view(node)
        else:
            what = f"{node.key} {node.args.get('kind') or ''}".strip().lower()
            refuse(node, f"a script cannot contain this statement: statement={what}", _PUSHED)

    def _name(self, node: Any, name: str, stream: Stream) -> None:
        if name.casefold() in {known.casefold() for known in self.known}:
            refuse(node, f"the name is taken: name={name}", "each table and view has a name of its own")
        self.known[name] = QueryRows(stream)

    def _view(self, node: Any) -> None:
        """Add a view, and note whether it is an output, and whether it is materialized.

        `or replace` has no effect: a script defines the whole circuit, and a start with `--accept-circuit` replaces views.
        """
        inside = node.this
        named, columns = (inside.this, inside.expressions) if isinstance(inside, exp.Schema) else (inside, [])
        rows = with_names(node, rows_of(node.expression, self.known), columns)
        self._name(node, named.name, rows.stream)
        self.known[named.name] = rows
        properties = node.args.get("properties")
        kinds = {type(each).__name__ for each in properties.expressions} if properties is not None else set()
        for each in properties.expressions if properties is not None else []:
            if each.name.casefold() == SORTED_BY and "MaterializedProperty" in kinds:
                self.sorted_by[named.name] = _sorted_by(each, rows.stream.schema.names)
            elif not isinstance(each, exp.TemporaryProperty | exp.MaterializedProperty):
                refuse(
                    each,
                    f"a view has no such option: option={each.name or each.key}",
                    "leave it out; a materialized view has sorted_by, and a table has others",
                )
        if "TemporaryProperty" not in kinds:
            self.views[named.name] = rows.stream
            if "MaterializedProperty" in kinds:
                self.materialized.add(named.name)

    def _set(self, node: Any) -> None:
        """Set the error policy, the only setting: `SET error_policy = 'stop'`."""
        said: Any = node.expressions[0].this if node.expressions else node
        name = getattr(getattr(said, "this", None), "name", "")
        if name.casefold() != "error_policy":
            refuse(node, f"no such setting: setting={name}", "there is error_policy = 'dead-letter', 'null' or 'stop'")
        self.error_policy = said.expression.name
        if self.error_policy not in ERROR_POLICIES:
            refuse(
                node,
                f"no such error policy: error_policy={self.error_policy!r}",
                nearest(self.error_policy, ERROR_POLICIES),
            )


def _sorted_by(option: Any, names: Sequence[str]) -> tuple[str, ...]:
    """Return the columns of `sorted_by = 'customer, day'`, written as the view has them."""
    known = {name.casefold(): name for name in names}
    columns = [part.strip().strip('"') for part in str(option.args["value"].name).split(",")]
    return tuple(known.get(column.casefold(), column) for column in columns)


def _table(node: Any) -> Stream:
    """Return the table of a CREATE TABLE; refuse constraints other than NOT NULL, DEFAULT and one primary key."""
    columns: list[Column] = []
    defaults: dict[str, Any] = {}
    keys: list[list[str]] = []
    for part in node.this.expressions:
        if isinstance(part, exp.ColumnDef):
            kinds = {type(constraint.kind).__name__: constraint.kind for constraint in part.constraints}
            if kinds.keys() - _CONSTRAINTS:
                refuse(
                    part, "a column can have only NOT NULL, DEFAULT and PRIMARY KEY", "leave the other constraints out"
                )
            columns.append(Column(part.name, column_type(part.args["kind"]), "NotNullColumnConstraint" not in kinds))
            keys += [[part.name]] if "PrimaryKeyColumnConstraint" in kinds else []
            if "DefaultColumnConstraint" in kinds:
                defaults[part.name] = constant_value(kinds["DefaultColumnConstraint"].this)
        elif isinstance(part, exp.PrimaryKey):
            keys.append([_column_name(each) for each in part.expressions])
        else:
            refuse(part, "a table can have only columns and a primary key", "leave the other constraints out")
        if len(keys) > 1:
            refuse(part, "a table has one primary key", "name its columns together, primary key (a, b)")
    options = _options(node)
    key = keys[0] if keys else None
    with about(node):
        return table(node.this.this.name, columns, key, options["watermark"], bool(options["append_only"]), defaults)


def _column_name(node: Any) -> str:
    while getattr(node, "this", None) is not None and not isinstance(node.this, str):
        node = node.this
    return str(node.this)


def _options(node: Any) -> dict[str, Any]:
    """Return the options of a table's WITH clause: `append_only` and `watermark`."""
    found: dict[str, Any] = {"append_only": False, "watermark": None}
    properties = node.args.get("properties")
    for each in properties.expressions if properties is not None else []:
        name = each.name if not hasattr(each.this, "name") else each.this.name
        if name.casefold() not in found:
            refuse(each, f"a table has no such option: option={name}", _OPTIONS)
        value = each.args.get("value")
        found[name.casefold()] = _watermark(each, value.name) if name.casefold() == "watermark" else _truth(each, value)
    return found


def _truth(node: Any, value: Any) -> bool:
    text = str(value.this).casefold()
    if text not in ("true", "false"):
        refuse(node, f"not true or false: value={text}", _OPTIONS)
    return text == "true"


def _watermark(node: Any, text: str) -> Mapping[str, datetime.timedelta]:
    """Return the watermark that a text such as `at 5 minutes` denotes: the time column, and the allowed lateness of its rows."""
    column, _, late = text.strip().partition(" ")
    said = exp.Literal.string(late)
    said.meta.update(start=offset_of(node))
    span = interval(exp.Interval(this=said), lambda part: lit(part.this)) if late else None
    if span is None or span.months:
        refuse(node, f"not a watermark: watermark={text!r}", "write watermark = 'at 5 minutes'")
    return {column: span.span}
