"""Signatures of functions: the number and types of arguments, which must be constant, and the result for a null
constant.

A call is checked against its signature before it is lowered, so the code of a function can rely on its arguments. The
tables of docs/sql.md list the signatures.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from sqlglot import exp

from dbsp.expr.build import Expr, lit
from dbsp.expr.expression import Literal, natural_type
from dbsp.expr.methods.applied import unwrap
from dbsp.expr.types import is_float, is_integer, is_number, is_timestamp
from dbsp.sql.errors import refuse
from dbsp.sql.parser import Histogram
from dbsp.sql.types import constant, is_constant, type_in
from dbsp.zset.schema import (
    BINARY,
    BOOL,
    DATE,
    DURATION,
    FLOAT64,
    INT64,
    STRING,
    TIME,
    TIMESTAMP,
    Schema,
    is_list,
    list_of,
)

KINDS: dict[str, Callable[[pa.DataType], bool]] = {
    "any": lambda _type: True,
    "bool": lambda type_: type_ == BOOL,
    "whole": is_integer,
    "number": is_number,
    "text": lambda type_: type_ == STRING,
    "texts or bytes": lambda type_: type_ in (STRING, BINARY),
    "list": is_list,
    "bytes": lambda type_: type_ == BINARY,
    "texts": lambda type_: type_ == list_of(STRING),
    "text or list": lambda type_: type_ == STRING or is_list(type_),
    "moment": lambda type_: is_timestamp(type_) or type_ == DATE,
    "time": lambda type_: is_timestamp(type_) or type_ in (DATE, TIME),
    "time or span": lambda type_: is_timestamp(type_) or type_ in (DATE, TIME, DURATION),
    "number or span": lambda type_: is_number(type_) or type_ == DURATION,
    "number or moment": lambda type_: is_number(type_) or is_timestamp(type_) or type_ in (DATE, DURATION),
    "series": lambda type_: is_integer(type_) or is_timestamp(type_) or type_ == DATE,
    "step": lambda type_: is_integer(type_) or type_ == DURATION,
    "span": lambda type_: type_ == DURATION,
    "double": is_float,
    "no list": lambda type_: not is_list(type_),
}
"""Kinds of types that an argument may have."""
_RESULTS: dict[str, pa.DataType] = {
    "text": STRING, "whole": INT64, "bool": BOOL, "double": FLOAT64, "texts": list_of(STRING), "moment": TIMESTAMP, "day": DATE,
    "span": DURATION, "bytes": BINARY,
}  # fmt: skip
_PARAMETER = re.compile(r"(?P<key>\w+)(?P<mark>[?*!]*): (?P<kind>[a-z ]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A parameter: the argument's key in the parser's node, the kind of its type, and whether it is optional or constant."""

    key: str
    kind: str
    optional: bool
    constant: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """A function's name, parameters and result; the result `same` is the type of the first argument.

    The result `element` is the type of its elements.

    With `nulls`, a constant null argument makes the call null.
    """

    name: str
    parameters: tuple[Parameter, ...]
    result: str
    nulls: bool

    def __str__(self) -> str:
        """Return the signature as the documentation shows it."""
        shown = [
            f"{'constant ' if each.constant else ''}{each.kind}{'?' if each.optional else ''}"
            for each in self.parameters
        ]
        return f"{self.name}({', '.join(shown)})"


def signature(text: str) -> Signature:
    """Return the signature that a text such as `lpad(this: text, n: whole) -> text` denotes.

    After a key `?` marks an optional argument and `!` a constant one. A result with `~` is not null for a constant null
    argument.
    """
    called, _, result = text.partition(" -> ")
    name, _, inside = called.partition("(")
    parameters = tuple(
        Parameter(key=found["key"], kind=found["kind"], optional="?" in found["mark"], constant="!" in found["mark"])
        for found in _PARAMETER.finditer(inside)
    )
    return Signature(name=name, parameters=parameters, result=result.rstrip("~"), nulls=not result.endswith("~"))


def _alike(form: str, *functions: tuple[type, str]) -> list[tuple[type, str]]:
    """Return signatures of functions that differ in their names alone."""
    return [(kind, name + form) for kind, name in functions]


_TEXTS = (
    (exp.Abs, "abs(this: number or span) -> same"),
    (exp.Sign, "sign(this: number) -> whole"),
    (exp.Round, "round(this: number, decimals?!: whole) -> same"),
    (exp.Floor, "floor(this: number) -> same"),
    (exp.Ceil, "ceil(this: number) -> same"),
    (exp.Trunc, "trunc(this: number) -> same"),
    *_alike(
        "(this: number) -> double",
        (exp.Sqrt, "sqrt"), (exp.Exp, "exp"), (exp.Ln, "ln"), (exp.Sin, "sin"), (exp.Cos, "cos"), (exp.Tan, "tan"),
        (exp.Asin, "asin"), (exp.Acos, "acos"), (exp.Atan, "atan"), (exp.Radians, "radians"), (exp.Degrees, "degrees"),
    ),
    (exp.Log, "log(this: number, expression?: number) -> double"),
    (exp.Atan2, "atan2(this: number, expression: number) -> double"),
    (exp.Pow, "power(this: number, expression: number) -> double"),
    (exp.IsNan, "isnan(this: double) -> bool"),
    (exp.Lower, "lower(this: text) -> text"),
    (exp.Upper, "upper(this: text) -> text"),
    (exp.Initcap, "initcap(this: text) -> text"),
    (exp.Reverse, "reverse(this: text) -> text"),
    (exp.Repeat, "repeat(this: text, times: whole) -> text"),
    (exp.Trim, "trim(this: text, expression?: text) -> text"),
    (exp.Length, "length(this: text or list) -> whole"),
    (exp.Substring, "substr(this: text, start: whole, length?: whole) -> text"),
    (exp.Left, "left(this: text, expression: whole) -> text"),
    (exp.Right, "right(this: text, expression: whole) -> text"),
    (exp.Pad, "lpad(this: text, expression: whole, fill_pattern: text) -> text"),
    (exp.StartsWith, "starts_with(this: text, expression: text) -> bool"),
    (exp.EndsWith, "ends_with(this: text, expression: text) -> bool"),
    (exp.StrPosition, "position(this: text, substr: text) -> whole"),
    (exp.Replace, "replace(this: text, expression: text, replacement: text) -> text"),
    (exp.SplitPart, "split_part(this: text, delimiter: text, part_index: whole) -> text"),
    (exp.Split, "string_split(this: text, expression!: text) -> texts~"),
    (exp.RegexpLike, "regexp_matches(this: text, expression!: text, flag?!: text) -> bool"),
    (exp.RegexpExtract, "regexp_extract(this: text, expression!: text, group?!: whole, parameters?!: text) -> text"),
    (exp.RegexpReplace, "regexp_replace(this: text, expression!: text, replacement!: text, modifiers?!: text) -> text"),
    (exp.MD5, "md5(this: text) -> text"),
    (exp.Hex, "hex(this: texts or bytes) -> text"),
    (exp.Unhex, "unhex(this: text) -> bytes"),
    (exp.ToBase64, "to_base64(this: bytes) -> text"),
    (exp.FromBase64, "from_base64(this: text) -> bytes"),
    (exp.Levenshtein, "levenshtein(this: text, expression: text) -> whole"),
    (exp.Dayname, "dayname(this: moment) -> text"),
    (exp.Monthname, "monthname(this: moment) -> text"),
    (exp.SHA2, "sha256(this: text) -> text"),
    (exp.JSONExtractScalar, "->>(this: text, expression!: any) -> text"),
    (exp.Nullif, "nullif(this: any, expression: any) -> same~"),
    (exp.DateDiff, "date_diff(expression: moment, this: moment) -> whole"),
    (exp.DateBin, "time_bucket(this!: span, expression: moment) -> moment"),
    (exp.TimeToStr, "strftime(this: moment, format!: text) -> text"),
    (exp.StrToTime, "strptime(this: text, format!: text) -> moment"),
    (exp.TimeToUnix, "epoch(this: time or span) -> double"),
    (exp.DateFromParts, "make_date(year: whole, month: whole, day: whole) -> day"),
    (exp.LastDay, "last_day(this: moment) -> day"),
    (exp.GenerateSeries, "generate_series(start: series, end?: series, step?!: step) -> same~"),
    (exp.ArrayContains, "list_contains(this: list, expression!: any) -> bool"),
    (exp.ArraySort, "list_sort(this: list) -> same"),
    (exp.ArrayMin, "list_min(this: list) -> element"),
    (exp.ArrayMax, "list_max(this: list) -> element"),
    (exp.ArrayReverse, "array_reverse(this: list) -> same"),
    (exp.ArraySize, "array_length(this: list) -> whole"),
    (exp.ArrayToString, "array_to_string(this: texts, expression!: text) -> text~"),
    (exp.ArrayDistinct, "list_distinct(this: list) -> same"),
    *_alike(
        "(this: moment) -> whole",
        (exp.Year, "year"), (exp.Quarter, "quarter"), (exp.Month, "month"), (exp.Week, "week"), (exp.WeekOfYear, "week"),
        (exp.Day, "day"), (exp.DayOfMonth, "day"), (exp.DayOfWeek, "dayofweek"), (exp.DayOfWeekIso, "isodow"),
        (exp.DayOfYear, "dayofyear"),
    ),
    (exp.Hour, "hour(this: time) -> whole"),
    (exp.Minute, "minute(this: time) -> whole"),
    (exp.Second, "second(this: time) -> whole"),
)  # fmt: skip
SIGNATURES = {kind: signature(text) for kind, text in _TEXTS}
"""The functions that the parser has a node for."""
AGGREGATES: dict[type, Signature] = {
    kind: signature(text)
    for kind, text in (
        (exp.Count, "count(this?: any) -> whole"),
        (exp.CountIf, "count_if(this: bool) -> whole"),
        (exp.ApproxDistinct, "approx_count_distinct(this: any) -> whole"),
        (exp.Sum, "sum(this: number or span) -> number or span"),
        (exp.Avg, "avg(this: number or span) -> number or span"),
        *_alike("(this: any) -> same", (exp.Min, "min"), (exp.Max, "max"), (exp.AnyValue, "any_value")),
        (exp.Mode, "mode(this: no list) -> same"),
        *_alike("(this: any, expression: any) -> same", (exp.ArgMax, "arg_max"), (exp.ArgMin, "arg_min")),
        *_alike("(this: any) -> same", (exp.First, "first"), (exp.Last, "last")),
        *_alike(
            "(this: number) -> double",
            (exp.Stddev, "stddev"), (exp.StddevSamp, "stddev_samp"), (exp.StddevPop, "stddev_pop"), (exp.Variance, "variance"),
            (exp.VariancePop, "var_pop"), (exp.Skewness, "skewness"), (exp.Kurtosis, "kurtosis"),
        ),
        *_alike(
            "(this: number, expression: number) -> double",
            (exp.Corr, "corr"), (exp.CovarPop, "covar_pop"), (exp.CovarSamp, "covar_samp"), (exp.RegrSlope, "regr_slope"),
            (exp.RegrIntercept, "regr_intercept"), (exp.RegrR2, "regr_r2"), (exp.RegrAvgx, "regr_avgx"),
            (exp.RegrAvgy, "regr_avgy"),
        ),
        (exp.RegrCount, "regr_count(this: any, expression: any) -> whole"),
        (exp.Median, "median(this: number) -> number"),
        (exp.PercentileCont, "quantile_cont(this: number, expression!: number) -> number"),
        (exp.PercentileDisc, "quantile_disc(this: no list, expression!: number) -> same"),
        (exp.Quantile, "quantile(this: no list, quantile!: number) -> same"),
        *_alike("(this: bool) -> bool", (exp.LogicalAnd, "bool_and"), (exp.LogicalOr, "bool_or")),
        *_alike(
            "(this: whole) -> same",
            (exp.BitwiseAndAgg, "bit_and"), (exp.BitwiseOrAgg, "bit_or"), (exp.BitwiseXorAgg, "bit_xor"),
        ),
        (exp.GroupConcat, "string_agg(this: text, separator?!: text) -> text"),
        (exp.ArrayAgg, "array_agg(this: any) -> list"),
        (Histogram, "histogram(this: any) -> list"),
    )
}  # fmt: skip
"""The aggregates; each can be called over a window too."""
WINDOWS: dict[type, Signature] = {
    kind: signature(text)
    for kind, text in (
        *(
            (kind, f"{name}() -> {result}")
            for kind, name, result in (
                (exp.RowNumber, "row_number", "whole"), (exp.Rank, "rank", "whole"), (exp.DenseRank, "dense_rank", "whole"),
                (exp.PercentRank, "percent_rank", "double"), (exp.CumeDist, "cume_dist", "double"),
            )
        ),
        (exp.Ntile, "ntile(this!: whole) -> whole"),
        *_alike("(this: any, offset?!: whole, default?: any) -> same", (exp.Lag, "lag"), (exp.Lead, "lead")),
        *_alike("(this: any) -> same", (exp.FirstValue, "first_value"), (exp.LastValue, "last_value")),
        (exp.NthValue, "nth_value(this: any, offset!: whole) -> same"),
    )
}  # fmt: skip
"""The functions that are called over windows alone."""
NAMED = {
    found.name: found
    for found in map(
        signature,
        (
            "date_part(0!: text, 1: time or span) -> whole",
            "iff(0: bool, 1: any, 2: any) -> same~",
            "now() -> moment",
            "isfinite(0: double) -> bool",
            "suffix(0: text, 1: text) -> bool",
            "prefix(0: text, 1: text) -> bool",
            "instr(0: text, 1: text) -> whole",
            "list_distinct(0: list) -> same",
            "len(0: list) -> whole",
            "list_sum(0: list) -> number",
            "list_reverse(0: list) -> same",
            "list_position(0: list, 1!: any) -> whole",
            "list_indexof(0: list, 1!: any) -> whole",
            "list_slice(0: list, 1: whole, 2: whole) -> same",
            "to_microseconds(0: whole) -> span",
            "to_timestamp(this: whole) -> moment",
            "epoch_ms(this: number or moment) -> moment",
            "json_array_length(0: text, 1?!: text) -> whole",
            "epoch_us(0: time or span) -> whole",
        ),
    )
}
"""The functions that the parser knows by name alone; their arguments are counted from 0."""


def documented() -> str:
    """Return the tables of calls in the documentation, by kind of result, with the kinds of arguments."""
    return "\n\n".join(
        _table(what, found)
        for what, found in (
            ("calls", (*SIGNATURES.values(), *NAMED.values())),
            ("aggregates", AGGREGATES.values()),
            ("calls over windows alone", WINDOWS.values()),
        )
    )


def _table(what: str, signatures: Iterable[Signature]) -> str:
    by_result: dict[str, set[str]] = {}
    for found in signatures:
        if found.name.isidentifier():
            by_result.setdefault(found.result, set()).add(f"`{found}`")
    rows = [f"| {result} | {', '.join(sorted(calls))} |" for result, calls in sorted(by_result.items())]
    return "\n".join([f"| result | {what} |", "| --- | --- |", *rows])


def checked(node: Any, name: str, lower: Callable[[Any], Expr], schema: Schema) -> Expr | None:
    """Refuse a call that does not fit its signature; return a typed null if a constant null argument makes the call null.

    Return None for other calls, and for functions without a signature.
    """
    found = _of_seconds(node) if isinstance(node, exp.UnixToTime) else SIGNATURES.get(type(node)) or NAMED.get(name)
    if found is None:
        return None
    parts = list(enumerate(node.expressions)) if found.name == name and name in NAMED else None
    given = node.args if parts is None else {str(at): part for at, part in parts}
    _check_count(node, found, given, counted=parts is not None)
    null = False
    for each in found.parameters:
        part = given.get(each.key)
        if part is None:
            continue
        null |= _is_null(part, each, found, lower, schema)
    return _null(found, given, lower, schema) if null and found.nulls else None


def _of_seconds(node: Any) -> Signature | None:
    """Return the signature of `to_timestamp` or `epoch_ms`, for which the parser makes one node; None with a format."""
    scale = node.args.get("scale")
    if scale is None:
        return NAMED["to_timestamp"]
    return None if scale.is_string else NAMED["epoch_ms"]


def check_call(node: Any, found: Signature, lower: Callable[[Any], Expr], schema: Schema) -> None:
    """Refuse a call of an aggregate, or of a function over a window, that does not fit its signature.

    An argument with DISTINCT or an order is checked by its value. Several values in brackets, and `*`, fit all kinds.
    """
    _check_count(node, found, node.args, counted=False)
    for each in found.parameters:
        part = _bare(node.args.get(each.key))
        if part is None or isinstance(part, exp.Tuple | exp.Star):
            continue
        _is_null(part, each, found, lower, schema)


def _is_null(part: Any, wanted: Parameter, found: Signature, lower: Callable[[Any], Expr], schema: Schema) -> bool:
    """Refuse an argument that does not fit its parameter; return whether it is a constant null, which fits all kinds."""
    value = lower(part)
    if wanted.constant and not is_constant(value):
        refuse(part, f"a constant is wanted here: function={found.name} got={value}", f"it is {found}")
    if is_constant(value) and constant(value) is None:
        return True
    _check_kind(part, value, wanted, found, schema)
    return False


def _bare(part: Any) -> Any:
    """Return the value inside DISTINCT and ORDER BY of an aggregate's argument, or None for several values."""
    while isinstance(part, exp.Order | exp.Distinct):
        part = part.this if isinstance(part, exp.Order) else part.expressions[0] if len(part.expressions) == 1 else None
    return part


def _check_count(node: Any, found: Signature, given: Any, *, counted: bool) -> None:
    """Refuse a call with missing or additional arguments."""
    missing = [each for each in found.parameters if not each.optional and given.get(each.key) is None]
    if missing:
        refuse(node, f"too few arguments: function={found.name}", f"it is {found}")
    known = {each.key for each in found.parameters}
    if any(given.get(key) for key in (given if counted else _OPERANDS) if key not in known):
        refuse(node, f"too many arguments: function={found.name}", f"it is {found}")


_OPERANDS = ("this", "expression", "expressions")


def _check_kind(part: Any, value: Expr, wanted: Parameter, found: Signature, schema: Schema) -> None:
    """Refuse an argument of the wrong kind; a constant text may denote a time."""
    type_ = type_in(value, schema)
    if type_ is None:
        held = constant(value)
        type_ = natural_type(held)
        if type_ == STRING and wanted.kind in (
            "moment",
            "time",
            "time or span",
            "series",
            "number or moment",
            "step",
            "span",
        ):
            return
    if not KINDS[wanted.kind](type_):
        refuse(
            part, f"another type is wanted here: function={found.name} got={type_} want={wanted.kind}", f"it is {found}"
        )


def _null(found: Signature, given: Any, lower: Callable[[Any], Expr], schema: Schema) -> Expr:
    """Return the null that a call gives, in the type of the call's result."""
    if found.result in _RESULTS:
        return lit(None, _RESULTS[found.result])
    first: Sequence[Any] = [given[each.key] for each in found.parameters if given.get(each.key) is not None]
    value = lower(first[0])
    type_ = type_in(value, schema)
    if type_ is None and isinstance(e := unwrap(value), Literal) and e.value is not None:
        type_ = natural_type(e.value)
    return Expr(Literal(None, type_))
