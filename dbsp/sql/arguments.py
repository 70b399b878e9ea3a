"""List the arguments of sqlglot's nodes that the dialect reads, and refuse all others, so that no clause is ignored
silently.

**Law** An argument that the parser set is read by the module that lowers the node, or refused here with its place.
"""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from dbsp.sql.errors import refuse
from dbsp.sql.expressions import OPERATORS
from dbsp.sql.functions import FUNCTIONS
from dbsp.sql.grouping import AGGREGATES
from dbsp.sql.walks import parts
from dbsp.sql.windows import PLACES, VALUES

_PLAIN = frozenset(["this", "expression", "expressions"])
_WINDOW_ORDER = "write the order in OVER, such as rank() over (order by v)"
READ: dict[type, tuple[str, ...]] = {
    exp.Alias: ("alias",),
    exp.Array: ("bracket_notation", "struct_name_inheritance", "value_constructor"),
    exp.ArraySort: ("nulls_first",),
    exp.AtTimeZone: ("zone",),
    exp.Between: ("low", "high"),
    exp.Bracket: ("offset", "safe", "returns_list_for_maps"),
    exp.Case: ("ifs", "default"),
    exp.Cast: ("to",),
    exp.Column: ("table", "db", "catalog"),
    exp.ColumnConstraint: ("kind",),
    exp.ColumnDef: ("kind", "constraints"),
    exp.Concat: ("safe", "coalesce"),
    exp.ConcatWs: ("safe", "coalesce"),
    exp.Count: ("big_int",),
    exp.Create: ("kind", "properties", "exists", "replace"),
    exp.CTE: ("alias", "materialized"),
    exp.DataType: ("nested", "kind"),
    exp.DateBin: ("unit", "zone", "origin"),
    exp.DateDiff: ("unit", "date_part_boundary"),
    exp.DateFromParts: ("year", "month", "day"),
    exp.DateTrunc: ("unit",),
    exp.Distinct: ("on",),
    exp.Div: ("typed", "safe"),
    exp.DPipe: ("safe",),
    exp.Except: ("distinct", "order", "limit", "offset", "with_"),
    exp.Fetch: ("direction", "count", "limit_options"),
    exp.First: (),
    exp.GenerateSeries: ("start", "end", "step", "is_end_exclusive"),
    exp.Greatest: ("ignore_nulls",),
    exp.Group: ("all", "rollup", "cube", "grouping_sets"),
    exp.GroupConcat: ("separator",),
    exp.Identifier: ("quoted",),
    exp.If: ("true", "false"),
    exp.ILike: ("negate",),
    exp.In: ("query",),
    exp.Intersect: ("distinct", "order", "limit", "offset", "with_"),
    exp.Interval: ("unit",),
    exp.Join: ("side", "kind", "on", "using", "method"),
    exp.JSONExtractScalar: ("only_json_types", "scalar_only"),
    exp.Lag: ("offset", "default"),
    exp.Lead: ("offset", "default"),
    exp.Least: ("ignore_nulls",),
    exp.Like: ("negate",),
    exp.LimitOptions: ("rows",),
    exp.Literal: ("is_string",),
    exp.NthValue: ("offset",),
    exp.Ordered: ("desc", "nulls_first"),
    exp.Pad: ("fill_pattern", "is_left"),
    exp.PercentileCont: ("quantile",),
    exp.PercentileDisc: ("quantile",),
    exp.Property: ("value",),
    exp.Quantile: ("quantile",),
    exp.RegexpExtract: ("group", "null_if_pos_overflow", "parameters"),
    exp.RegexpLike: ("flag", "full_match"),
    exp.RegexpReplace: ("replacement", "modifiers", "single_replace"),
    exp.Repeat: ("times",),
    exp.Replace: ("replacement",),
    exp.Round: ("decimals",),
    exp.Select: (
        *("distinct", "from_", "joins", "where", "group", "having", "windows", "qualify", "order", "limit", "offset"),
        *("with_", "operation_modifiers"),
    ),
    exp.Set: ("unset", "tag"),
    exp.SetItem: ("kind",),
    exp.SHA2: ("length",),
    exp.Slice: (),
    exp.SplitPart: ("delimiter", "part_index"),
    exp.Star: ("except_", "replace", "rename", "ilike"),
    exp.StrPosition: ("substr",),
    exp.StrToTime: ("format",),
    exp.Subquery: ("alias", "with_", "order", "limit", "offset", "joins"),
    exp.Substring: ("start", "length"),
    exp.Table: ("alias", "db", "ordinality", "joins"),
    exp.TableAlias: ("columns",),
    exp.TimestampTrunc: ("unit",),
    exp.TimeToStr: ("format",),
    exp.Trim: ("position",),
    exp.TryCast: ("to", "safe"),
    exp.Union: ("distinct", "order", "limit", "offset", "with_"),
    exp.UnixToTime: ("scale",),
    exp.Unnest: ("alias", "offset"),
    exp.Values: ("alias", "order", "limit", "offset"),
    exp.Window: ("partition_by", "order", "spec", "alias", "over"),
    exp.WindowSpec: ("kind", "start", "start_side", "end", "end_side"),
    exp.With: ("recursive",),
}
"""By the class of a node, the arguments that the dialect reads besides plain operands, and those without a meaning."""
ACCEPTED = (*FUNCTIONS, *OPERATORS, *AGGREGATES, *PLACES, *VALUES, exp.Lag, exp.Lead, exp.Ntile, exp.Explode)
"""The classes of calls that the dialect lowers; for calls with more than plain operands, `READ` lists the arguments."""
_NO_OPERANDS = (exp.CumeDist, exp.DenseRank, exp.PercentRank, exp.Rank, exp.RowNumber, exp.CurrentTimestamp)
"""Calls that take no arguments: anything inside their brackets is refused."""
_INSTEAD = {
    (exp.Group, "totals"): "write group by grouping sets ((g), ())",
    (
        exp.WindowSpec,
        "exclude",
    ): "EXCLUDE is not there: take the row's own value out of the result, such as sum(x) over w - x",
    (exp.ArgMax, "count"): "keep the first n rows by qualify row_number() over (order by v desc) <= n, then array_agg",
    (exp.ArgMin, "count"): "keep the first n rows by qualify row_number() over (order by v) <= n, then array_agg",
    (exp.Ordered, "with_fill"): "join the rows to range(…)",
    (
        exp.With,
        "search",
    ): "SEARCH and CYCLE are not there: add a column for the depth, and write union, which ends by itself",
    (exp.Slice, "step"): "unnest the list with ordinality, and filter by its position",
    (exp.DataType, "expressions"): "write the type without brackets",
}
_SIZED = ("DECIMAL", "NUMERIC", "ARRAY", "LIST", "STRUCT", "VARCHAR", "CHAR", "TEXT", "NCHAR", "NVARCHAR")
"""The types that may have arguments in brackets; the length of a text type is ignored, as in DuckDB."""
_SHOWN = {"except_": "exclude", "with_": "with", "from_": "from", "with_fill": "with fill", "ilike": "ilike"}


def check_arguments(statement: Any) -> None:
    """Refuse the first argument in a statement's nodes that the dialect does not read.

    Statements of other kinds pass unchecked: a script refuses them as a whole.
    """
    if not _is_ours(statement):
        return
    for node in parts(statement):
        kind = type(node)
        if isinstance(node, exp.Func) and not isinstance(node, ACCEPTED):
            continue  # an unknown function: the lowering refuses it by its name, which says more
        if kind is exp.TableAlias and any(isinstance(name, exp.ColumnDef) for name in node.columns):
            refuse(
                node, f"the names of an alias have no types: alias={node.name}", "write alias(name, …), or cast columns"
            )
        read = READ.get(kind, ())
        for key, value in node.args.items():
            if value in (None, False, []) or key == "_type" or _is_empty(value):
                continue
            if key in read or (key in _PLAIN and not _is_left_over(node, key)):
                continue
            what = _SHOWN.get(key, key.rstrip("_").replace("_", " "))
            hint = _INSTEAD.get(
                (kind, key), _WINDOW_ORDER if kind in _NO_OPERANDS else "docs/sql.md says what there is"
            )
            refuse(node, f"the dialect does not have this: what={kind.__name__.lower()} with {what}", hint)


def _is_ours(statement: Any) -> bool:
    """Return whether the dialect has this kind of statement; a script refuses other kinds as a whole."""
    if isinstance(statement, exp.Create):
        return statement.kind in ("TABLE", "VIEW")
    return isinstance(statement, exp.Query | exp.Set)


def _is_empty(value: Any) -> bool:
    """Return whether the value is an empty node, such as the index parameters that the parser adds after a primary key."""
    return isinstance(value, exp.IndexParameters) and not any(value.args.values())


def _is_left_over(node: Any, key: str) -> bool:
    """Return whether no module reads this operand of the node, although other nodes have an operand of the same name."""
    if isinstance(node, exp.DataType):
        name = node.this.name if hasattr(node.this, "name") else str(node.this)
        return key == "expressions" and name not in _SIZED
    return isinstance(node, _NO_OPERANDS)
