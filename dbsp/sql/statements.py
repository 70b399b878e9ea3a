"""Scripts: CREATE TABLE, CREATE VIEW and SET, which make a circuit; and one SELECT, which makes a stream."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dbsp.circuit.circuit import circuit
from dbsp.circuit.nodes import Circuit
from dbsp.circuit.source_lines import user_line
from dbsp.errors import CircuitError, ConfigError
from dbsp.sql.errors import Script, refuse, reported
from dbsp.sql.parsing import parser, statements_of
from dbsp.stream.handle import Handle
from dbsp.stream.stream import Stream
from dbsp.stream.table import table
from dbsp.zset.schema import Column

_PUSHED = "tables change by what is pushed; a script has CREATE TABLE, CREATE VIEW and SET"
_OPTIONS = "there are append_only = true and watermark = 'at 5 minutes'"


def sql(text: str, **tables: Stream) -> Stream:
    """The rows of a SELECT, in DuckDB's dialect, kept up to date; the names in FROM are the keywords.

    **Law** The view equals what DuckDB answers on the tables as they are. What is not there is refused, with its line and
    column and what to write instead; docs/sql.md says what there is.

    **State**, **Cost** Those of the methods that it stands for: `stream.explain()` shows them.

    **Errors** `ConfigError` without sqlglot, which is in the extra `sql`.

    **Example**

    >>> import dbsp
    >>> t = dbsp.table("t", {"k": dbsp.STRING, "x": dbsp.INT64})
    >>> totals = dbsp.sql("select k, sum(x) as total from t group by k having count(*) > 1", t=t)
    >>> with dbsp.open(dbsp.circuit("demo", {"totals": totals})) as run:
    ...     run.push("t", [{"k": "a", "x": 1}, {"k": "a", "x": 2}, {"k": "b", "x": 5}])
    ...     print(run.step()["totals"].to_rows())
    ...     run.delete("t", [{"k": "a", "x": 2}])
    ...     print(run.step()["totals"].to_rows())
    [(('a', 3), 1)]
    [(('a', 3), -1)]
    """
    source = user_line()
    parser()
    from dbsp.sql.queries import rows_of  # noqa: PLC0415 (sqlglot is an extra)
    from dbsp.sql.scope import Rows  # noqa: PLC0415 (with it)

    script = Script(text)
    found = statements_of(script, source)
    if len(found) != 1:
        raise CircuitError(f"sql takes one query: statements={len(found)}", "a script is dbsp.sql_circuit(name, script)")
    for name, stream in tables.items():
        if not isinstance(stream, Handle):
            raise CircuitError(f"not a stream: table={name} got={type(stream).__name__}", "give what dbsp.table returned")
    with reported(script, source):
        return rows_of(found[0], {name: Rows(stream) for name, stream in tables.items()}).stream


def sql_circuit(name: str, script: str, file: str | None = None, error_policy: str = "dead-letter") -> Circuit:
    """The circuit of a script: its tables, and its views.

    **Shape** `CREATE TABLE t (k VARCHAR NOT NULL, x BIGINT, PRIMARY KEY (k)) WITH (append_only = true)`;
    `CREATE MATERIALIZED VIEW v AS SELECT …` can be read and gives its changes, `CREATE VIEW` gives its changes alone, and
    `CREATE TEMP VIEW` is a name for the queries after it. `SET error_policy = 'stop'` is as in `dbsp.circuit`.

    **Errors** `CircuitError` with the file, or `sql`, line and column.

    **Example**

    >>> import dbsp
    >>> shop = dbsp.sql_circuit("shop", '''
    ...     create table sales (item varchar, euros bigint);
    ...     create materialized view best as select item, sum(euros) as total from sales group by item order by total desc limit 1;
    ... ''')
    >>> with dbsp.open(shop) as run:
    ...     run.push("sales", [{"item": "tea", "euros": 3}, {"item": "mate", "euros": 5}])
    ...     print(run.step()["best"].to_rows())
    ...     run.delete("sales", [{"item": "mate", "euros": 5}])
    ...     print(run.step()["best"].to_rows())
    [(('mate', 5), 1)]
    [(('mate', 5), -1), (('tea', 3), 1)]
    """
    source = user_line()
    parser()
    text = Script(script, file)
    statements = statements_of(text, source)
    made = _Made(error_policy)
    with reported(text, source):
        for statement in statements:
            made.take(statement)
    if not made.views:
        where = f" at={file}" if file else ""
        raise CircuitError(f"a script without a view{where}", "write create materialized view v as select …")
    with reported(text, source):
        return circuit(name, made.views, materialize=made.materialized, error_policy=made.error_policy)


def circuit_of_file(path: Path) -> Circuit:
    """The circuit of a file with a script, named after the file."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"the circuit's file does not exist: file={path}", 'write circuit = "path/to/file.sql"') from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"the circuit's file is not UTF-8: file={path} position={error.start}") from None
    return sql_circuit(path.stem, text, str(path))


class _Made:
    """What the statements of a script have made so far."""

    def __init__(self, error_policy: str) -> None:
        """Nothing yet."""
        from dbsp.sql.scope import Rows  # noqa: PLC0415 (sqlglot is an extra)

        self.rows = Rows
        self.known: dict[str, Any] = {}
        self.views: dict[str, Stream] = {}
        self.materialized: set[str] = set()
        self.error_policy = error_policy

    def take(self, node: Any) -> None:
        """One more statement."""
        from sqlglot import exp  # noqa: PLC0415 (an extra)

        if isinstance(node, exp.Set):
            self._set(node)
        elif isinstance(node, exp.Create) and node.kind == "TABLE" and isinstance(node.this, exp.Schema):
            self._name(node, node.this.this.name, _table(node))
        elif isinstance(node, exp.Create) and node.kind == "VIEW":
            self._view(node)
        else:
            what = f"{node.key} {node.args.get('kind') or ''}".strip().lower()
            refuse(node, f"a script does not have this statement: statement={what}", _PUSHED)

    def _name(self, node: Any, name: str, stream: Stream) -> None:
        if name.casefold() in {known.casefold() for known in self.known}:
            refuse(node, f"the name is taken: name={name}", "each table and view has a name of its own")
        self.known[name] = self.rows(stream)

    def _view(self, node: Any) -> None:
        """A view, and what is shown of it."""
        from dbsp.sql.queries import rows_of  # noqa: PLC0415 (sqlglot is an extra)
        from dbsp.sql.relations import with_names  # noqa: PLC0415 (with it)

        inside = node.this
        named, columns = (inside.this, inside.expressions) if type(inside).__name__ == "Schema" else (inside, [])
        rows = with_names(node, rows_of(node.expression, self.known), columns)
        self._name(node, named.name, rows.stream)
        self.known[named.name] = rows
        properties = node.args.get("properties")
        kinds = {type(each).__name__ for each in properties.expressions} if properties is not None else set()
        if "TemporaryProperty" not in kinds:
            self.views[named.name] = rows.stream
            if "MaterializedProperty" in kinds:
                self.materialized.add(named.name)

    def _set(self, node: Any) -> None:
        """SET error_policy = 'stop'."""
        said = node.expressions[0].this if node.expressions else None
        name = getattr(getattr(said, "this", None), "name", "")
        if name.casefold() != "error_policy":
            refuse(node, f"no such setting: setting={name}", "there is error_policy = 'dead-letter', 'null' or 'stop'")
        self.error_policy = said.expression.name


def _table(node: Any) -> Stream:
    """The table of a CREATE TABLE."""
    from sqlglot import exp  # noqa: PLC0415 (an extra)

    from dbsp.sql.errors import about  # noqa: PLC0415 (one name)
    from dbsp.sql.types import column_type  # noqa: PLC0415 (with it)

    columns: list[Column] = []
    key: list[str] = []
    for part in node.this.expressions:
        if isinstance(part, exp.ColumnDef):
            kinds = {type(constraint.kind).__name__ for constraint in part.constraints}
            others = kinds - {"NotNullColumnConstraint", "PrimaryKeyColumnConstraint"}
            if others:
                refuse(part, "a column has NOT NULL and PRIMARY KEY alone", "leave the other constraints out")
            columns.append(Column(part.name, column_type(part.args["kind"]), "NotNullColumnConstraint" not in kinds))
            key += [part.name] if "PrimaryKeyColumnConstraint" in kinds else []
        elif isinstance(part, exp.PrimaryKey):
            key += [_column_name(each) for each in part.expressions]
        else:
            refuse(part, "a table has columns and a primary key alone", "leave the other constraints out")
    options = _options(node)
    with about(node):
        return table(node.this.this.name, columns, key or None, options["watermark"], bool(options["append_only"]))


def _column_name(node: Any) -> str:
    while getattr(node, "this", None) is not None and not isinstance(node.this, str):
        node = node.this
    return str(node.this)


def _options(node: Any) -> dict[str, Any]:
    """What stands in WITH."""
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
    """`at 5 minutes`: the column, and how late its rows may be."""
    from sqlglot import exp  # noqa: PLC0415 (an extra)

    from dbsp.expr.build import lit  # noqa: PLC0415 (one name)
    from dbsp.sql.intervals import interval  # noqa: PLC0415 (with it)

    column, _, late = text.strip().partition(" ")
    span = interval(exp.Interval(this=exp.Literal.string(late)), lambda part: lit(part.this)) if late else None
    if span is None or span.months:
        refuse(node, f"not a watermark: watermark={text!r}", "write watermark = 'at 5 minutes'")
    return {column: span.span}
