"""Functions under DuckDB's names: each becomes a method of an expression or one of `dbsp`'s functions."""

from __future__ import annotations

import datetime
import json
import math
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from dbsp.expr.build import (
    Expr,
    coalesce,
    concat_ws,
    date_diff,
    from_epoch,
    greatest,
    least,
    lit,
    now,
    sequence,
    when,
)
from dbsp.expr.conditional import CASE
from dbsp.expr.expression import Call, Literal
from dbsp.expr.mathematics import NULLIF
from dbsp.expr.methods.applied import unwrap
from dbsp.expr.names import nearest
from dbsp.expr.sequences import ELEMENTS_MAX
from dbsp.expr.types import DECIMAL_DIGITS, is_decimal, is_float, is_integer, is_number
from dbsp.sql.casts import cast
from dbsp.sql.errors import name_of, refuse
from dbsp.sql.signatures import AGGREGATES, NAMED, SIGNATURES, WINDOWS
from dbsp.sql.types import as_float, constant, is_constant, met, resolved, type_in, with_room
from dbsp.zset.schema import BOOL, DATE, DURATION, FLOAT64, INT64, STRING, TIMESTAMP, decimal, list_of

if TYPE_CHECKING:
    from dbsp.sql.scope import Scope

Lower = Callable[[Any], Expr]
Function = Callable[[Any, Lower, "Scope"], Expr]
MONDAY = datetime.datetime(2000, 1, 3) - datetime.datetime(1970, 1, 1)
"""The default origin of time buckets, counted from 1970: a Monday, as in DuckDB."""
SECOND = datetime.timedelta(seconds=1)
_WEEK = 7
_PARTS = {
    "year": "year", "quarter": "quarter", "month": "month", "week": "week", "weekofyear": "week", "isoyear": "iso_year",
    "day": "day", "dayofmonth": "day", "isodow": "day_of_week", "doy": "day_of_year", "dayofyear": "day_of_year",
    "hour": "hour", "minute": "minute", "second": "second",
}  # fmt: skip


def _argument(value: Expr) -> Any:
    """Return the Python value of a constant expression, and any other expression unchanged."""
    return constant(value) if is_constant(value) else value


def as_text(value: Expr, scope: Scope) -> Expr:
    """Return a value cast to a text, for a concatenation."""
    if is_constant(value) and constant(value) is None:
        return Expr(Literal(None, STRING))
    is_text = isinstance(constant(value), str) if is_constant(value) else type_in(value, scope.schema) == STRING
    if is_text:
        return value
    type_ = type_in(value, scope.schema)
    return value.cast(STRING) if type_ is None else cast(value, type_, STRING, strict=True)


_GIVES = {
    "starts_with": BOOL, "ends_with": BOOL, "contains": BOOL, "regexp_match": BOOL, "position": INT64,
    "split": list_of(STRING),
}  # fmt: skip
"""The result types of the methods of texts whose result is not a text."""


def _method(name: str, *arguments: str) -> Function:
    """Return the function that lowers a call to an expression's method.

    `arguments` are the keys of the node's optional arguments, in the method's order. A constant null among them makes
    the call null.
    """

    def made(node: Any, lower: Lower, _scope: Scope) -> Expr:
        given = [_argument(lower(node.args[key])) for key in arguments if node.args.get(key) is not None]
        if any(argument is None for argument in given):
            return lit(None, _GIVES.get(name, STRING))
        result: Expr = getattr(lower(node.this), name)(*given)
        return result

    return made


def _of_double(name: str) -> Function:
    """Return the function that lowers a call of one double; decimals and whole numbers are cast to it."""

    def made(node: Any, lower: Lower, scope: Scope) -> Expr:
        result: Expr = getattr(as_float(lower(node.this), scope.schema), name)()
        return result

    return made


def part_of(node: Any, part: str, value: Expr) -> Expr:
    """Return one part of a date or time by the name that EXTRACT has for it."""
    part = part.casefold()
    part = part if part in _PARTS else part.removesuffix("s")
    if part in ("dow", "dayofweek", "weekday"):
        return value.day_of_week() % 7
    if part == "epoch":
        return value.epoch("microsecond").cast(FLOAT64) / lit(1e6)
    if part == "microsecond":
        return value.second() * 1_000_000 + value.microsecond()
    if part == "millisecond":
        return value.second() * 1000 + value.microsecond() // 1000
    if part not in _PARTS:
        refuse(node, f"no such part of a time: part={part}", nearest(part, [*_PARTS, "dow", "epoch"]))
    result: Expr = getattr(value, _PARTS[part])()
    return result


def _extract(node: Any, lower: Lower, _scope: Scope) -> Expr:
    return part_of(node, node.this.name, lower(node.expression))


def _part(name: str) -> Function:
    return lambda node, lower, _scope: part_of(node, name, lower(node.this))


def _truncated(node: Any, lower: Lower, scope: Scope) -> Expr:
    value = lower(node.this)
    if type_in(value, scope.schema) == DATE:
        value = value.cast(TIMESTAMP)
    return value.truncate(node.args["unit"].name.casefold())


def _difference(node: Any, lower: Lower, _scope: Scope) -> Expr:
    """Lower `date_diff`: count the unit's boundaries between two times, but for weeks count whole weeks, as DuckDB does."""
    unit, start, end = node.args["unit"].name.casefold(), lower(node.expression), lower(node.this)
    if unit in ("week", "weeks"):
        days = date_diff("day", start, end)
        return when(days < 0, -(-days // _WEEK)).otherwise(days // _WEEK)
    return date_diff(unit, start, end)


def _bucket(node: Any, lower: Lower, scope: Scope) -> Expr:
    width, value = constant(lower(node.this)), lower(node.expression)
    if isinstance(width, str):
        refuse(node.this, f"a bucket's width is an interval, not a text: width={width}", f"write interval '{width}'")
    is_date = type_in(value, scope.schema) == DATE
    if is_date:
        value = value.cast(TIMESTAMP)
    origin = node.args.get("unit") or node.args.get("zone") or node.args.get("origin")
    begin = MONDAY if origin is None else constant(lower(origin))
    if isinstance(begin, datetime.datetime):
        begin -= datetime.datetime(1970, 1, 1)
    found = value.bucket(width, begin % width)
    return found.truncate("day").cast(DATE) if is_date else found


def _round(node: Any, lower: Lower, scope: Scope) -> Expr:
    digits = node.args.get("decimals")
    count = 0 if digits is None else constant(lower(digits))
    return _of_decimals(lower(node.this), scope, max(count, 0), lambda value: value.round(count))


def _of_decimals(value: Expr, scope: Scope, digits: int, rounded: Callable[[Expr], Expr]) -> Expr:
    """Return a rounded value whose decimal type has no more than `digits` decimal places.

    Rounding may carry into a new digit, so the value gets one digit of room first.
    """
    type_ = resolved(value, scope.schema).type(scope.schema)
    if type_ is None or not is_decimal(type_) or type_.scale <= digits:
        return rounded(value)
    kept = max(type_.precision - type_.scale + digits, 1) + (type_.precision < DECIMAL_DIGITS)
    return rounded(with_room(value, type_)).cast(decimal(kept, digits))


def _whole(name: str) -> Function:
    """Return the function that lowers `floor`, `ceil` or `trunc`."""
    return lambda node, lower, scope: _of_decimals(lower(node.this), scope, 0, lambda value: getattr(value, name)())


def _sign(node: Any, lower: Lower, scope: Scope) -> Expr:
    """Lower `sign`; the sign of a NaN is 0, as in DuckDB."""
    value = lower(node.this)
    type_ = type_in(value, scope.schema)
    return when(value.is_nan(), 0).otherwise(value.sign()) if type_ is not None and is_float(type_) else value.sign()


def _log(node: Any, lower: Lower, scope: Scope) -> Expr:
    base = node.args.get("expression")
    if base is None:
        return as_float(lower(node.this), scope.schema).log10()
    number, found = constant(lower(node.this)), as_float(lower(base), scope.schema)
    if number == 2:  # noqa: PLR2004 (the parser writes log2 as log with base 2)
        return found.log2()
    return found.log10() if number == 10 else found.ln() / as_float(lower(node.this), scope.schema).ln()  # noqa: PLR2004


def _trim(node: Any, lower: Lower, _scope: Scope) -> Expr:
    """Lower `trim`: remove spaces only, as DuckDB does; `.trim` of an expression removes tabs and line ends too."""
    value, side, characters = lower(node.this), (node.args.get("position") or "BOTH").upper(), node.expression
    if characters is not None:
        if side != "BOTH":
            refuse(
                node,
                "trim with a list of characters works only on both ends",
                "write trim(x, 'abc'), or regexp_replace(x, '^[abc]+', '')",
            )
        return value.strip(_argument(lower(characters)))
    started = value if side == "TRAILING" else value.regexp_replace(r"^\p{Zs}+", "")
    return started if side == "LEADING" else started.regexp_replace(r"\p{Zs}+$", "")


def _pad(node: Any, lower: Lower, _scope: Scope) -> Expr:
    value, width, fill = lower(node.this), lower(node.expression), lower(node.args["fill_pattern"])
    return (value.lpad if node.args.get("is_left") else value.rpad)(_argument(width), _argument(fill))


def _concat(node: Any, lower: Lower, scope: Scope) -> Expr:
    return concat_ws("", *(as_text(lower(part), scope) for part in node.expressions))


def _concat_ws(node: Any, lower: Lower, scope: Scope) -> Expr:
    separator, *values = (lower(part) for part in node.expressions)
    return concat_ws(constant(separator), *(as_text(value, scope) for value in values))


def _repeated(node: Any, lower: Lower, _scope: Scope) -> Expr:
    """Lower `repeat`; a count below one makes an empty text."""
    value, times = lower(node.this), lower(node.args["times"])
    if not is_constant(times):
        return value.repeat(greatest(times, 0))
    return lit(None, STRING) if constant(times) is None else value.repeat(max(constant(times), 0))


def _made_date(node: Any, lower: Lower, scope: Scope) -> Expr:
    """Lower `make_date(year, month, day)`; a date that does not exist is an error of its row."""
    parts = [as_text(lower(node.args[key]), scope) for key in ("year", "month", "day")]
    year, month, day = (
        part.lpad(greatest(part.length(), width), "0") for part, width in zip(parts, (4, 2, 2), strict=True)
    )
    return (year + "-" + month + "-" + day).cast(DATE)


def _joined_list(node: Any, lower: Lower, _scope: Scope) -> Expr:
    """Lower `array_to_string`; a list that holds nulls alone gives null, as in DuckDB."""
    value, separator = lower(node.this), _argument(lower(node.expression))
    if separator is None:
        separator = ","
    nulls = (value.list_length() > 0) & value.list_sort().element(1).is_null()
    return when(nulls, lit(None, STRING)).otherwise(value.list_join(separator))


def _split(node: Any, lower: Lower, _scope: Scope) -> Expr:
    """Lower `string_split`; a null separator gives a list of one element, the whole text."""
    value, separator = lower(node.this), constant(lower(node.expression))
    if separator is None:
        return when(value.is_not_null(), value.split("\0")).otherwise(None)
    return value.split(separator)


def _several(function: Callable[..., Expr]) -> Function:
    def made(node: Any, lower: Lower, scope: Scope) -> Expr:
        return function(*met([lower(part) for part in (node.this, *node.expressions)], scope.schema))

    return made


def _nullif(node: Any, lower: Lower, scope: Scope) -> Expr:
    """Lower `nullif`; the result has the type of the first argument, whatever type the comparison uses."""
    given, second = lower(node.this), lower(node.expression)
    value, other = met([given, second], scope.schema)
    made = Expr(Call(NULLIF, (unwrap(value), unwrap(other))))
    own = type_in(given, scope.schema)
    if own is None or type_in(made, scope.schema) == own:
        return made
    return Expr(Call(CASE, (unwrap(value == other), Literal(None), unwrap(given))))


def _regexp_replace(node: Any, lower: Lower, _scope: Scope) -> Expr:
    flags = node.args.get("modifiers")
    chosen = "" if flags is None else constant(lower(flags))
    pattern, new = (constant(lower(part)) for part in (node.expression, node.args["replacement"]))
    return lower(node.this).regexp_replace(_flagged(node, pattern, chosen), new, all="g" in chosen)


def _flagged(node: Any, pattern: str, flags: str) -> str:
    """Return the pattern with the regular expression flags written inside it; refuse an unknown flag."""
    for flag in flags:
        if flag not in "cgilmnps":
            refuse(node, f"no such flag of a pattern: flag={flag}", "there are c, i, g, l, s, and m, n, p")
    if "l" in flags:
        pattern = re.sub(r"([^\w\s])", r"\\\1", pattern)
    said = (
        [flag for flag in flags if flag in "ci"][-1:] == ["i"],
        [flag for flag in flags if flag in "mnps"][-1:] == ["s"],
    )
    inline = "".join(letter for letter, on in zip("is", said, strict=True) if on)
    return f"(?{inline}){pattern}" if inline else pattern


def _regexp_like(node: Any, lower: Lower, _scope: Scope) -> Expr:
    flags = node.args.get("flag")
    pattern = _flagged(node, constant(lower(node.expression)), "" if flags is None else constant(lower(flags)))
    return lower(node.this).regexp_match(pattern)


def _regexp_extract(node: Any, lower: Lower, _scope: Scope) -> Expr:
    """Lower `regexp_extract`; the result is an empty text where the pattern does not match."""
    group = node.args.get("group")
    number = 0 if group is None else constant(lower(group))
    value, flags = lower(node.this), node.args.get("parameters")
    pattern = _flagged(node, constant(lower(node.expression)), "" if flags is None else constant(lower(flags)))
    found = value.regexp_extract(pattern, number)
    return when(value.is_not_null(), found.fill_null("")).otherwise(None)


def _json(node: Any, lower: Lower, _scope: Scope) -> Expr:
    path = constant(lower(node.expression))
    if isinstance(path, int):
        refuse(node, "an element of a JSON array is named by a path", f"write ->> '$[{path}]'")
    if not isinstance(path, str) or path.startswith("/"):
        refuse(node, "->> takes a key or a path", "write ->> 'key', or ->> '$.a.b'")
    if not path:
        refuse(node, "->> with an empty key is the whole text", "leave ->> '' out; a key that is empty is $.\"\"")
    return lower(node.this).json_value(path if path.startswith("$") else _key_path(path))


def _key_path(key: str) -> str:
    """Return the JSON path of one object key, quoted unless the key is a plain name.

    Version 0.1.0 stored the unquoted form of plain names, so it has to stay.
    """
    if re.fullmatch(r"[A-Za-z_]\w*", key):
        return f"$.{key}"
    return f"$[{json.dumps(key, ensure_ascii=False)}]"


def _zone(node: Any, lower: Lower, scope: Scope) -> Expr:
    value, zone = lower(node.this), _argument(lower(node.args["zone"]))
    type_ = type_in(value, scope.schema)
    return value.from_zone(zone) if type_ == TIMESTAMP else value.in_zone(zone)


def _from_unix(node: Any, lower: Lower, scope: Scope) -> Expr:
    given = node.args.get("scale")
    if given is not None and not (isinstance(given, exp.Literal) and given.this in ("0", "3", "6")):
        refuse(node, "to_timestamp takes only seconds since 1970", "write strptime(x, '%Y-%m-%d %H:%M:%S')")
    units = {0: "second", 3: "millisecond", 6: "microsecond"}
    scale, value = node.args.get("scale"), lower(node.this)
    unit = units[int(scale.this) if scale is not None else 0]
    type_ = type_in(value, scope.schema)
    if type_ is None or is_number(type_):
        return from_epoch(value, unit)
    if unit != "millisecond":  # milliseconds are `epoch_ms`, which converts in both directions
        refuse(node, f"a number is wanted here: got={type_}", "epoch(x) and epoch_us(x) are the numbers of a time")
    if type_ == DURATION:
        return _units(value, datetime.timedelta(milliseconds=1))
    return _milliseconds(value.epoch("microsecond"))


def _milliseconds(since: Expr) -> Expr:
    """Return microseconds as milliseconds, rounded to the nearest, halves away from zero."""
    return when(since >= 0, (since + 500) // 1000).otherwise(-((500 - since) // 1000))


def _to_unix(node: Any, lower: Lower, scope: Scope) -> Expr:
    value = lower(node.this)
    if type_in(value, scope.schema) == DURATION:
        return value / lit(SECOND)
    return value.epoch("microsecond").cast(FLOAT64) / lit(1e6)


def _units(span: Expr, unit: datetime.timedelta) -> Expr:
    """Return how many of a unit fit into a span, truncated to a whole number."""
    return span.cast(INT64) // (unit // datetime.timedelta(microseconds=1))


def _epoch(unit: datetime.timedelta, name: str) -> Function:
    """Return the function that lowers `epoch_us`: whole units since 1970, or in a span."""

    def made(node: Any, lower: Lower, scope: Scope) -> Expr:
        value = lower(node.expressions[0])
        return _units(value, unit) if type_in(value, scope.schema) == DURATION else value.epoch(name)

    return made


def _series(node: Any, lower: Lower, scope: Scope) -> Expr:
    start, end, by = (node.args.get(key) for key in ("start", "end", "step"))
    step = 1 if by is None else constant(lower(by))
    first, last = lower(start), lower(end)
    if node.args.get("is_end_exclusive"):
        last = _before(last, step, node, scope)
    _refuse_long(first, last, step, node)
    return sequence(first, last, step)


def _before(end: Expr, step: Any, node: Any, scope: Scope) -> Expr:
    """Return the last number of a `range`, whose end is exclusive, for the inclusive `sequence`."""
    type_ = INT64 if is_constant(end) and isinstance(constant(end), int) else type_in(end, scope.schema)
    if type_ is None or not is_integer(type_) or not isinstance(step, int) or isinstance(step, bool):
        refuse(node, "range makes only whole numbers", "write generate_series, which includes its end")
    by = 1 if step > 0 else -1
    if is_constant(end) and constant(end) is not None:
        return lit(constant(end) - by)
    return (end if type_ == INT64 else end.cast(INT64)) - by


def _refuse_long(first: Expr, last: Expr, step: Any, node: Any) -> None:
    """Refuse a series of constants that exceeds the limit of list elements, which would make every row fail."""
    if not (is_constant(first) and is_constant(last)):
        return
    known = [constant(first), constant(last), step]
    if all(isinstance(each, int) for each in known) and step and (known[1] - known[0]) // step >= ELEMENTS_MAX:
        refuse(node, f"a list has {ELEMENTS_MAX:,} elements at most", "push the rows into a table")


def _length(node: Any, lower: Lower, scope: Scope) -> Expr:
    value = lower(node.this)
    type_ = type_in(value, scope.schema)
    return value.list_length() if type_ is not None and type_ not in (STRING,) else value.length()


def _date(node: Any, lower: Lower, _scope: Scope) -> Expr:
    return lower(node.this).truncate("day").cast(DATE)


FUNCTIONS: dict[type, Function] = {
    exp.Abs: _method("abs"),
    exp.Sign: _sign,
    exp.Round: _round,
    exp.Floor: _whole("floor"),
    exp.Ceil: _whole("ceil"),
    exp.Trunc: _whole("trunc"),
    exp.Sqrt: _of_double("sqrt"),
    exp.Exp: _of_double("exp"),
    exp.Ln: _of_double("ln"),
    exp.Log: _log,
    exp.Sin: _of_double("sin"),
    exp.Cos: _of_double("cos"),
    exp.Tan: _of_double("tan"),
    exp.Asin: _of_double("asin"),
    exp.Acos: _of_double("acos"),
    exp.Atan: _of_double("atan"),
    exp.Atan2: lambda node, lower, scope: as_float(lower(node.this), scope.schema).atan2(
        as_float(lower(node.expression), scope.schema)
    ),
    exp.Radians: lambda node, lower, scope: as_float(lower(node.this), scope.schema) * lit(math.pi / 180),
    exp.Degrees: lambda node, lower, scope: as_float(lower(node.this), scope.schema) * lit(180 / math.pi),
    exp.IsNan: _method("is_nan"),
    exp.Lower: _method("lower"),
    exp.Upper: _method("upper"),
    exp.Initcap: _method("title"),
    exp.Reverse: _method("reverse"),
    exp.Repeat: _repeated,
    exp.Trim: _trim,
    exp.Length: _length,
    exp.Substring: _method("substr", "start", "length"),
    exp.Left: _method("left", "expression"),
    exp.Right: _method("right", "expression"),
    exp.Pad: _pad,
    exp.StartsWith: _method("starts_with", "expression"),
    exp.EndsWith: _method("ends_with", "expression"),
    exp.Contains: _method("contains", "expression"),
    exp.StrPosition: _method("position", "substr"),
    exp.Replace: _method("replace", "expression", "replacement"),
    exp.SplitPart: _method("split_part", "delimiter", "part_index"),
    exp.Split: _split,
    exp.RegexpLike: _regexp_like,
    exp.RegexpExtract: _regexp_extract,
    exp.RegexpReplace: _regexp_replace,
    exp.Concat: _concat,
    exp.ConcatWs: _concat_ws,
    exp.MD5: _method("md5"),
    exp.Hex: _method("hex"),
    exp.Unhex: _method("from_hex"),
    exp.ToBase64: _method("base64"),
    exp.FromBase64: _method("from_base64"),
    exp.Levenshtein: lambda node, lower, _scope: lower(node.this).levenshtein(_argument(lower(node.expression))),
    exp.Dayname: _method("day_name"),
    exp.Monthname: _method("month_name"),
    exp.SHA2: _method("sha256"),
    exp.JSONExtractScalar: _json,
    exp.Greatest: _several(greatest),
    exp.Least: _several(least),
    exp.Nullif: _nullif,
    exp.Extract: _extract,
    exp.TimestampTrunc: _truncated,
    exp.DateTrunc: _truncated,
    exp.DateDiff: _difference,
    exp.DateBin: _bucket,
    exp.TimeToStr: _method("strftime", "format"),
    exp.StrToTime: _method("strptime", "format"),
    exp.AtTimeZone: _zone,
    exp.UnixToTime: _from_unix,
    exp.TimeToUnix: _to_unix,
    exp.DateFromParts: _made_date,
    exp.LastDay: _method("last_day"),
    exp.Date: _date,
    exp.GenerateSeries: _series,
    exp.ArrayContains: lambda node, lower, _scope: lower(node.this).list_contains(constant(lower(node.expression))),
    exp.ArraySort: _method("list_sort"),
    exp.ArrayToString: _joined_list,
    exp.ArrayDistinct: _method("list_distinct"),
    exp.ArrayMin: _method("list_min"),
    exp.ArrayMax: _method("list_max"),
    exp.ArrayReverse: _method("list_reverse"),
    exp.ArraySize: _method("list_length"),
    exp.ArrayConcat: lambda node, lower, _scope: lower(node.this).list_concat(*map(lower, node.expressions)),
    exp.Year: _part("year"),
    exp.Quarter: _part("quarter"),
    exp.Month: _part("month"),
    exp.Week: _part("week"),
    exp.WeekOfYear: _part("week"),
    exp.Day: _part("day"),
    exp.DayOfMonth: _part("day"),
    exp.DayOfWeek: _part("dow"),
    exp.DayOfWeekIso: _part("isodow"),
    exp.DayOfYear: _part("doy"),
    exp.Hour: _part("hour"),
    exp.Minute: _part("minute"),
    exp.Second: _part("second"),
}


def _json_array_length(value: Expr, path: str = "$") -> Expr:
    """Return the length of the array at a JSON path, 0 for a value that is no array, and null for an absent one."""
    path = path if path.startswith("$") else _key_path(path)
    is_there = when(value.json_value(path).is_not_null(), 0).otherwise(None)
    return coalesce(value.json_elements(path).list_length(), is_there)


_BY_NAME: dict[str, Callable[..., Expr]] = {
    "date_part": lambda node, part, value: part_of(node, constant(part), value),
    "iff": lambda _node, test, yes, no: when(test, yes).otherwise(no),
    "now": lambda _node: now(),
    "isfinite": lambda _node, value: value.is_finite(),
    "suffix": lambda _node, value, text: value.ends_with(_argument(text)),
    "prefix": lambda _node, value, text: value.starts_with(_argument(text)),
    "instr": lambda _node, value, text: value.position(_argument(text)),
    "list_distinct": lambda _node, value: value.list_distinct(),
    "len": lambda _node, value: value.list_length(),
    "list_sum": lambda _node, value: value.list_sum(),
    "list_reverse": lambda _node, value: value.list_reverse(),
    "list_position": lambda _node, value, element: value.list_position(constant(element)),
    "list_indexof": lambda _node, value, element: value.list_position(constant(element)),
    "list_slice": lambda _node, value, first, last: value.list_slice(_argument(first), _argument(last)),
    "date_sub": lambda node, *_: refuse(
        node, "date_sub is not supported", "write date_diff('day', a, b), or a - b of dates"
    ),
    "to_microseconds": lambda _node, value: value * lit(datetime.timedelta(microseconds=1)),
    "to_timestamp": lambda _node, value: from_epoch(value, "second"),
    "json_array_length": lambda _node, value, *path: _json_array_length(value, *map(_argument, path)),
}


def _of_any_number(method: str) -> Function:
    """Return the function that lowers a call with one argument or more to a method of the first."""

    def made(node: Any, lower: Lower, _scope: Scope) -> Any:
        if not node.expressions:
            refuse(node, f"an argument is missing: function={name_of(node)}", f"write {name_of(node)}(x)")
        return getattr(lower(node.expressions[0]), method)(*map(lower, node.expressions[1:]))

    return made


_TYPED: dict[str, Function] = {
    "hash": _of_any_number("hash"),
    "list_cat": _of_any_number("list_concat"),
    "epoch_us": _epoch(datetime.timedelta(microseconds=1), "microsecond"),
}
_REFUSED = {
    "to_char": "write strftime(ts, '%Y-%m-%d')",
    "current_date": "compare a column with now() in WHERE, such as ts >= now() - interval '1 day'",
    "current_time": "compare a column with now() in WHERE, such as ts >= now() - interval '1 hour'",
    "make_timestamp": "write make_date(y, m, d) + to_hours(h) + to_minutes(m) + to_seconds(s)",
    "make_time": "write cast(s as time) of a text such as '12:30:00'",
    "random": "a replay gives the same rows: push such values as a column",
    "uuid": "a replay gives the same rows: push such values as a column",
}


def called(node: Any, lower: Lower, scope: Scope) -> Expr:
    """Lower a call that the parser has no node class for, by the function's name."""
    name = node.name.casefold() if isinstance(node, exp.Anonymous) else name_of(node)
    if name in _TYPED:
        return _TYPED[name](node, lower, scope)
    if name in _BY_NAME:
        return _BY_NAME[name](node, *(lower(part) for part in node.expressions))
    signed = (each.name for table in (SIGNATURES, AGGREGATES, WINDOWS) for each in table.values())
    similar = nearest(name, sorted({*signed, *NAMED, *_BY_NAME, *_TYPED}))
    hint = similar if similar.startswith("did you mean") else "docs/sql.md lists the functions"
    return refuse(node, f"no such function: function={name}", _REFUSED.get(name, hint))
