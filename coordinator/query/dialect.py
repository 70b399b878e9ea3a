"""PostgreSQL's dialect in queries: translate one SELECT into DuckDB's, in the process for queries.

sqlglot parses the statement as PostgreSQL and writes it for DuckDB. Its result passes the same checker as every query
(`statement`), which keeps it to one SELECT over known names. Nothing here is trusted for that.

Besides sqlglot's own rules:

1. `public.v` is the view `v`. A relation of the catalogs is one name with a dot in it, such as `"pg_catalog.pg_class"`.
2. `$1` becomes the parameter's value, as a literal of its type; without a value, in a description, a null of its type.
3. Functions of PostgreSQL that DuckDB lacks, or that it would evaluate for itself, become macros (`functions`).
4. Casts to `regclass`, `regtype` and so on look names and numbers up in the catalogs.
5. Columns without a name get PostgreSQL's.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from dbsp.coordinator.query.functions import CONSTANTS, MACROS, RENAMED, renamed
from dbsp.coordinator.query.pg_types import type_of
from dbsp.coordinator.query.statement import HINTS, PARAMETERS, QueryLimits, run_query, stream_query
from dbsp.errors import ConfigError

PUBLIC = "public"
CATALOGS = ("pg_catalog", "information_schema")
SETTINGS = ("SET integer_division = true", "SET default_null_order = 'nulls_last_on_asc_first_on_desc'")
"""DuckDB's settings that give the same SQL PostgreSQL's meaning: `1/2` is 0, and nulls are larger than every value."""
KNOWN_RELATIONS: Mapping[str, int] = {
    "pg_class": 1259, "pg_type": 1247, "pg_proc": 1255, "pg_attribute": 1249, "pg_namespace": 2615, "pg_database": 1262,
    "pg_constraint": 2606, "pg_trigger": 2620, "pg_rewrite": 2618, "pg_attrdef": 2604, "pg_index": 2610,
    "pg_description": 2609, "pg_authid": 1260, "pg_extension": 3079, "pg_language": 2612, "pg_operator": 2617,
    "pg_tablespace": 1213, "pg_foreign_server": 1417, "pg_foreign_data_wrapper": 2328, "pg_event_trigger": 3466,
}  # fmt: skip
"""The numbers of the catalog relations, to which tools refer as `'pg_class'::regclass`."""
LOOKUPS: Mapping[str, tuple[str, str, str]] = {
    "regclass": ("pg_catalog.pg_class", "relname", "oid"),
    "regtype": ("pg_catalog.pg_type", "typname", "oid"),
    "regnamespace": ("pg_catalog.pg_namespace", "nspname", "oid"),
    "regrole": ("pg_catalog.pg_roles", "rolname", "oid"),
}
TEXT_KINDS = frozenset(
    {"regproc", "regprocedure", "regoper", "regoperator", "regconfig", "regdictionary", "regcollation"}
)
TYPES: Mapping[str, str] = {
    "oid": "bigint", "name": "text", "char": "text", "bpchar": "text", "xid": "bigint", "cid": "bigint", "tid": "text",
    "int2vector": "bigint[]", "oidvector": "bigint[]", "jsonb": "json", "inet": "text", "cidr": "text", "money": "decimal",
    "information_schema.sql_identifier": "text", "information_schema.character_data": "text", "pg_node_tree": "text",
    "information_schema.cardinal_number": "int", "information_schema.yes_or_no": "text", "aclitem": "text",
    "unknown": "text", "cstring": "text",
}  # fmt: skip
"""Types that DuckDB lacks, and the types that replace them."""
BIGINT = "bigint"
ONE_ROW_SOURCES = frozenset({"string_to_array", "current_setting"})
"""Scalar functions that tools write in FROM, where each gives one row with one column."""
NUMERIC = frozenset({"numeric", "decimal"})
USUAL_DECIMAL, DIGITS_MAX = "decimal(38, 10)", 38
PLAIN_NUMBER = re.compile(r"[+-]?(\d*)(?:\.(\d*))?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """The parts of a request in PostgreSQL's dialect beside its text.

    `parameters` are (PostgreSQL's name of the type or None, text or None). With `describe` it is not run: its views are
    empty, parameters without a value are null, and the result has the types alone. `session` are the values of functions such as
    `current_user`, `variables` those of `current_setting`, `relations` the names of the catalogs' relations.
    """

    parameters: Sequence[tuple[str | None, str | None]] = ()
    describe: bool = False
    session: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    relations: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Translated:
    """A statement for DuckDB; `labels` are the names of its columns that are PostgreSQL's; `prelude` makes its macros."""

    sql: str
    prelude: tuple[str, ...]
    labels: tuple[str | None, ...]
    tree: exp.Expr
    dialect: Dialect

    def run(self, tables: Mapping[str, pa.Table], limits: QueryLimits, explain: str | None = None) -> pa.Table:
        """Return the result; its schema's metadata has the types of the parameters, for a description."""
        describe = self.dialect.describe
        found = run_query(self.sql, tables, limits, tuple(tables), self.prelude, describe=describe, explain=explain)
        if explain is not None:
            return found
        found = found.rename_columns(self._names(found.schema))
        if not self.dialect.describe:
            return found
        types = {field.name.lower(): type_of(field.type).name for table in tables.values() for field in table.schema}
        return found.replace_schema_metadata({PARAMETERS: json.dumps(parameter_types(self, self.dialect, types))})

    def portions(self, tables: Mapping[str, pa.Table], limits: QueryLimits) -> Iterator[pa.RecordBatch]:
        """Yield the result in portions."""
        for batch in stream_query(self.sql, tables, limits, tuple(tables), self.prelude):
            yield batch.rename_columns(self._names(batch.schema))

    def _names(self, schema: pa.Schema) -> list[str]:
        """Return the names of the result's columns in PostgreSQL."""
        if len(self.labels) != len(schema):
            return list(schema.names)
        return [own or other for own, other in zip(self.labels, schema.names, strict=True)]


def translate(sql: str, dialect: Dialect) -> Translated:
    """Translate one statement.

    **Errors** `ConfigError` for what is not a SELECT of PostgreSQL's dialect.
    """
    logging.getLogger("sqlglot").setLevel(logging.CRITICAL)
    try:
        trees = [tree for tree in sqlglot.parse(sql, read="postgres") if tree is not None]
    except (SqlglotError, RecursionError) as error:
        raise ConfigError(f"not SQL: {_first_line(error)}", "write one SELECT in PostgreSQL's dialect") from None
    if len(trees) != 1:
        raise ConfigError(f"exactly one statement is allowed: statements={len(trees)}", "send them one by one")
    (tree,) = trees
    if not isinstance(tree, exp.Query | exp.Values):
        hint = HINTS.get(sql.split(maxsplit=1)[0].lower(), "push rows with `coordinator push`")
        raise ConfigError(f"only SELECT is allowed: statement={tree.key.upper()}", hint)
    if any(select.args.get("locks") for select in tree.find_all(exp.Select)):
        raise ConfigError("only reading is allowed: statement=SELECT FOR UPDATE", "leave the lock out")
    labels = _labels(tree)
    reads_catalogs = any(
        table.db.lower() in CATALOGS or table.name.startswith("pg_") for table in tree.find_all(exp.Table)
    )
    found = _Translation(dialect, _own_names(tree), reads_catalogs)
    try:
        text = found.changed(tree.copy()).sql(dialect="duckdb", unsupported_level=sqlglot.ErrorLevel.IGNORE)
    except (SqlglotError, RecursionError, ValueError) as error:
        raise ConfigError(
            f"a statement that cannot be translated: {_first_line(error)}", "write it in a simpler way"
        ) from None
    return Translated(sql=text, prelude=(*SETTINGS, *found.macros()), labels=labels, tree=tree, dialect=dialect)


def parameter_types(translated: Translated, dialect: Dialect, types: Mapping[str, str]) -> list[str]:
    """Return the types of the parameters, as they are declared, cast or compared; text if the statement leaves them open.

    `types` are PostgreSQL's names of the types of all columns that are read.
    """
    found: dict[int, str] = {}
    for node in translated.tree.find_all(exp.Parameter):
        found.setdefault(_number(node), _type_from_place(node, types))
    count = max([*found, len(dialect.parameters)], default=0)
    declared = [name for name, _ in dialect.parameters]
    declared += [None] * (count - len(declared))
    return [given or found.get(number, "text") for number, given in enumerate(declared, 1)]


def _type_from_place(node: exp.Expr, types: Mapping[str, str]) -> str:
    parent = node.parent
    while isinstance(parent, exp.Paren):
        parent = parent.parent
    if isinstance(parent, exp.Cast):
        return parent.to.sql(dialect="postgres").lower()
    if isinstance(parent, exp.Limit | exp.Offset):
        return BIGINT
    if isinstance(parent, exp.Predicate | exp.Binary | exp.In | exp.Between):
        for column in parent.find_all(exp.Column):
            if column.name.lower() in types:
                return types[column.name.lower()]
    return "text"


def _number(node: exp.Parameter) -> int:
    try:
        return int(node.name)
    except ValueError:
        raise ConfigError(f"not a parameter: ${node.name[:20]}", "write $1, $2 and so on") from None


def _first_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300].replace("\x1b[4m", "").replace("\x1b[0m", "")


def _own_names(tree: exp.Expr) -> frozenset[str]:
    return frozenset(cte.alias.lower() for cte in tree.find_all(exp.CTE))


class _Translation:
    """The translation of one statement, node by node; it notes the macros that the statement needs."""

    def __init__(self, dialect: Dialect, own_names: frozenset[str], reads_catalogs: bool) -> None:
        self._dialect, self._own, self._reads_catalogs = dialect, own_names, reads_catalogs
        self._relations = frozenset(dialect.relations)
        self._used: set[str] = set()
        self._rules: Mapping[type[exp.Expr], Callable[[Any], exp.Expr]] = {
            exp.Parameter: self._parameter, exp.Table: self._table, exp.Column: self._column, exp.Dot: self._dot,
            exp.Cast: self._cast, exp.Operator: self._operator, exp.Collate: lambda node: node.this,
            exp.Any: _list_in, exp.All: _list_in,
        }  # fmt: skip

    def macros(self) -> tuple[str, ...]:
        """Return the statements that make the macros."""
        return tuple(MACROS[name] for name in sorted(self._used))

    def changed(self, tree: exp.Expr) -> exp.Expr:
        """Change every node, those below another one first."""
        for node in reversed(list(tree.bfs())):
            made = self._change(node)
            if made is not node:
                if node is tree:
                    return made
                node.replace(made)
        return tree

    def _change(self, node: exp.Expr) -> exp.Expr:
        rule = self._rules.get(type(node))
        if rule is not None:
            return rule(node)
        if isinstance(node, exp.Func):
            return self._function(node)
        return node

    def _parameter(self, node: exp.Parameter) -> exp.Expr:
        number = _number(node)
        given = self._dialect.parameters
        if not self._dialect.describe and not 1 <= number <= len(given):
            raise ConfigError(f"a parameter without a value: ${number}", f"values given: {len(given)}")
        type_, text = given[number - 1] if 1 <= number <= len(given) else (None, None)
        if isinstance(node.parent, exp.Limit | exp.Offset):
            type_ = BIGINT
        value: exp.Expr = exp.null() if text is None else exp.Literal.string(text)
        if type_ is None or type_ in ("text", "varchar", "unknown"):
            return value
        if type_.endswith("[]") and isinstance(value, exp.Literal):
            return exp.cast(_list_literal(value), _type(type_))
        if type_ in NUMERIC:
            return exp.cast(value, _decimal_of(text))
        return exp.cast(value, _type(type_))

    def _table(self, node: exp.Table) -> exp.Expr:
        schema, name = node.db.lower(), node.name
        if isinstance(node.this, exp.Func):
            name = _function_name(node.this)
            full = f"pg_catalog.{name}"
            if name in ONE_ROW_SOURCES:
                alias = node.alias or name
                return exp.select(exp.alias_(node.this, alias)).subquery(alias)
            node.set("db", None)  # pg_catalog.generate_series
            node.set("catalog", None)
            if full in self._relations:
                node.set("this", exp.to_identifier(full, quoted=True))
                return self._aliased(node, name)
            return node
        if node.catalog and node.catalog == self._dialect.session.get("current_database"):
            node.set("catalog", None)
        if schema == PUBLIC:
            node.set("db", None)
            return self._aliased(node, name)
        lowered = name if node.this.args.get("quoted") else name.lower()
        full = f"{schema or 'pg_catalog'}.{lowered}"
        if full in self._relations and not (not schema and lowered in self._own):
            node.set("db", None)
            node.set("this", exp.to_identifier(full, quoted=True))
            return self._aliased(node, lowered)
        return node

    def _aliased(self, node: exp.Table, name: str) -> exp.Table:
        if not node.alias:
            node.set("alias", exp.TableAlias(this=exp.to_identifier(name, quoted=True)))
        return node

    def _column(self, node: exp.Column) -> exp.Expr:
        if node.args.get("db"):
            node.set("db", None)
            node.set("catalog", None)
        if self._reads_catalogs and node.name.lower() == "tableoid":
            return exp.Literal.number(0)
        if not node.table and isinstance(node.this, exp.Identifier) and not node.this.quoted:
            name = node.name.lower()
            if name in self._dialect.session:
                return exp.Literal.string(self._dialect.session[name])
        return node

    def _dot(self, node: exp.Dot) -> exp.Expr:
        """Remove the schema of a function: `pg_catalog.f(x)`."""
        right = node.expression
        is_schema = isinstance(node.this, exp.Identifier | exp.Column) and node.this.name.lower() in (*CATALOGS, PUBLIC)
        return right if is_schema and not isinstance(right, exp.Identifier) else node

    def _operator(self, node: exp.Operator) -> exp.Expr:
        """Write `a OPERATOR(pg_catalog.~) b` as `a ~ b`."""
        sign = str(node.args["operator"]).rpartition(".")[2]
        patterns = {"~": (False, False), "~*": (False, True), "!~": (True, False), "!~*": (True, True)}
        if sign in patterns:
            negated, caseless = patterns[sign]
            arguments = [node.this, node.expression, *([exp.Literal.string("i")] if caseless else [])]
            found: exp.Expr = exp.Anonymous(this="regexp_matches", expressions=arguments)
            return exp.Not(this=found) if negated else found
        made = sqlglot.parse_one(f"a {sign} b", read="postgres")
        made.this.replace(node.this)
        made.expression.replace(node.expression)
        return made

    def _function(self, node: exp.Expr) -> exp.Expr:
        name = _function_name(node)
        session = self._dialect.session
        if name in CONSTANTS:
            return exp.Literal.string(session[CONSTANTS[name]])
        if name in ("current_setting", "set_config"):
            return self._setting(node, name)
        if name in MACROS:
            self._used.add(name)
            return exp.Anonymous(this=renamed(name), expressions=_arguments(node))
        if name in RENAMED:
            return exp.Anonymous(this=RENAMED[name], expressions=_arguments(node))
        return node

    def _setting(self, node: exp.Expr, name: str) -> exp.Expr:
        arguments = _arguments(node)
        if not (arguments and isinstance(arguments[0], exp.Literal)):
            return exp.null()
        if name == "set_config":  # the session has already carried out set_config
            return arguments[1] if len(arguments) > 1 else exp.null()
        wanted = arguments[0].name.lower()
        value = self._dialect.variables.get(wanted)
        if value is None and len(arguments) == 1:
            raise ConfigError(f"unrecognized configuration parameter: {wanted[:60]}")
        return exp.null() if value is None else exp.Literal.string(value)

    def _cast(self, node: exp.Cast) -> exp.Expr:
        kind = _kind(node.to)
        inner = node.this
        if kind in LOOKUPS:
            return self._looked_up(inner, kind, node.parent)
        if kind in TEXT_KINDS:
            return _bare(inner)
        if kind in NUMERIC:
            node.set("to", _decimal_of(inner.name if isinstance(inner, exp.Literal) else None))
            return node
        if kind.endswith("[]") and isinstance(inner, exp.Literal) and inner.is_string:
            return exp.cast(_list_literal(inner), _type(kind))
        if kind in TYPES or (kind.endswith("[]") and kind[:-2] in TYPES) or _is_qualified(node.to):
            node.set("to", _type(kind))
        return node

    def _looked_up(self, inner: exp.Expr, kind: str, parent: exp.Expr | None) -> exp.Expr:
        """Return the number of a name, or the name of a number; `'v'::regclass::text` is the name, too."""
        relation, name_column, number_column = LOOKUPS[kind]
        as_text = isinstance(parent, exp.Cast) and _kind(parent.to) in ("text", "varchar", "name")
        is_text = isinstance(inner, exp.Literal | exp.Parameter | exp.Null | exp.Concat | exp.DPipe) or (
            isinstance(inner, exp.Cast) and _kind(inner.to) in ("text", "varchar", "name")
        )
        if isinstance(inner, exp.Literal) and not inner.is_string:
            is_text = False
        if is_text and not as_text and isinstance(inner, exp.Literal):
            known = KNOWN_RELATIONS.get(inner.name.rpartition(".")[2].lower()) if kind == "regclass" else None
            if known is not None:
                return exp.cast(exp.Literal.number(known), _type(BIGINT))
        if (
            not is_text
            and isinstance(parent, exp.Cast)
            and _kind(parent.to) in ("oid", "int8", "bigint", "int4", "int")
        ):
            return inner
        key, value = (name_column, number_column) if is_text else (number_column, name_column)
        if is_text:
            inner = exp.Anonymous(
                this=renamed("bare_name"), expressions=[_bare(inner) if isinstance(inner, exp.Literal) else inner]
            )
            self._used.add("bare_name")
            if as_text:
                value = name_column
            elif kind == "regtype":
                self._used.add("type_oid")
                return exp.Anonymous(this=renamed("type_oid"), expressions=[inner])
        elif kind == "regtype":
            self._used.add("format_type")
            return exp.Anonymous(this=renamed("format_type"), expressions=[inner, exp.null()])
        picked = exp.select(exp.func("any_value", exp.column(value, table="looked"))).from_(
            exp.alias_(exp.to_table(f'"{relation}"'), "looked", table=True)
        )
        return exp.Subquery(this=picked.where(exp.EQ(this=exp.column(key, table="looked"), expression=inner)))


def _decimal_of(text: str | None) -> exp.DataType:
    """Return the type of a number without declared places: those of its text, or `USUAL_DECIMAL`.

    PostgreSQL's has as many as a value needs; DuckDB's would have three.
    """
    found = PLAIN_NUMBER.fullmatch(text) if text else None
    if found is None:
        return exp.DataType.build(USUAL_DECIMAL, dialect="duckdb")
    whole, places = len(found[1].lstrip("0")), len(found[2] or "")
    if whole + places > DIGITS_MAX:
        return exp.DataType.build("double", dialect="duckdb")
    return exp.DataType.build(f"decimal({max(whole + places, 1)}, {places})", dialect="duckdb")


def _list_in(node: exp.Expr) -> exp.Expr:
    """Read the text of a list, as in `x = ANY('{a,b}')`."""
    inner = node.this.this if isinstance(node.this, exp.Paren) else node.this
    if isinstance(inner, exp.Literal) and inner.is_string:
        node.set("this", exp.cast(_list_literal(inner), _type("text[]")))
    return node


def _type(kind: str) -> exp.DataType:
    if kind.endswith("[]"):
        return exp.DataType.build(f"{TYPES.get(kind[:-2], kind[:-2])}[]", dialect="postgres")
    return exp.DataType.build(TYPES.get(kind, kind), dialect="postgres")


def _kind(type_: exp.Expr) -> str:
    """Return PostgreSQL's name of a type, without `pg_catalog`."""
    return type_.sql(dialect="postgres").lower().replace('"', "").removeprefix("pg_catalog.")


def _is_qualified(type_: exp.Expr) -> bool:
    return "pg_catalog" in type_.sql(dialect="postgres").lower()


def _bare(node: exp.Expr) -> exp.Expr:
    """Remove the schema of a quoted name."""
    if isinstance(node, exp.Literal) and node.is_string:
        return exp.Literal.string(node.name.removeprefix("pg_catalog."))
    return node


def _list_literal(literal: exp.Literal) -> exp.Expr:
    """Write PostgreSQL's `'{1,2}'` as DuckDB's `'[1,2]'`."""
    text = literal.name.strip()
    if text.startswith("{") and text.endswith("}"):
        return exp.Literal.string("[" + text[1:-1] + "]")
    return literal


def _function_name(node: exp.Expr) -> str:
    if isinstance(node, exp.Anonymous):
        return node.name.lower()
    if isinstance(node, exp.CurrentVersion):
        return "version"
    return node.sql_name().lower() if isinstance(node, exp.Func) else ""


def _written_name(node: exp.Expr) -> str:
    """Return the name of a call as PostgreSQL has it, whatever the parser calls it; empty for another expression."""
    if not isinstance(node, exp.Func) or isinstance(node, exp.Anonymous):
        return _function_name(node)
    if isinstance(node, exp.CurrentTimestamp) and node.meta.get("end", 0) - node.meta.get("start", 0) + 1 == len("now"):
        return "now"
    name = node.sql(dialect="postgres").partition("(")[0].lower()
    return name if name.isidentifier() else _function_name(node)


def _arguments(node: exp.Expr) -> list[exp.Expr]:
    if isinstance(node, exp.Anonymous):
        return list(node.expressions)
    found: list[exp.Expr] = []
    for key in node.arg_types:
        value = node.args.get(key)
        if isinstance(value, list):
            found += value
        elif isinstance(value, exp.Expr):
            found.append(value)
    return found


def _labels(tree: exp.Expr) -> tuple[str | None, ...]:
    """Return PostgreSQL's names of the columns; None where the column's own name is kept, as of `*`."""
    first = tree
    while isinstance(first, exp.SetOperation | exp.Subquery | exp.Paren):
        first = first.this
    if not isinstance(first, exp.Select) or any(_is_star(each) for each in first.expressions):
        return ()
    return tuple(_label(each) for each in first.expressions)


def _is_star(node: exp.Expr) -> bool:
    return isinstance(node, exp.Star) or (isinstance(node, exp.Column) and isinstance(node.this, exp.Star))


def _label(node: exp.Expr) -> str | None:  # noqa: PLR0911 (one return per kind of expression)
    if node.alias_or_name and isinstance(node, exp.Alias | exp.Column):
        return str(node.alias_or_name)
    if isinstance(node, exp.Dot):
        return _label(node.expression)
    if isinstance(node, exp.Cast):
        inner = _label(node.this)
        return inner if inner != "?column?" else _kind(node.to).partition("(")[0]
    if isinstance(node, exp.Case):
        return "case"
    if isinstance(node, exp.Paren):
        return _label(node.this)
    if isinstance(node, exp.Subquery) and isinstance(node.this, exp.Select) and len(node.this.expressions) == 1:
        return _label(node.this.expressions[0])
    if isinstance(node, exp.Exists):
        return "exists"
    if isinstance(node, exp.Filter | exp.Window | exp.WithinGroup | exp.IgnoreNulls):
        return _label(node.this)
    name = _written_name(node)
    if name and not isinstance(node, exp.Binary | exp.Connector | exp.Unary):
        return name
    return "?column?"
