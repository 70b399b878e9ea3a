"""Types of functions, aggregates and operators over every kind of column: DuckDB's, but where docs/sql.md says otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

import dbsp
from dbsp.sql import functions
from tests.sql.test_signatures import NAMES

COLUMNS = {
    "i8": (dbsp.INT8, "tinyint"), "i32": (dbsp.INT32, "integer"), "i": (dbsp.INT64, "bigint"),
    "u8": (dbsp.UINT8, "utinyint"), "u": (dbsp.UINT64, "ubigint"), "d": (dbsp.decimal(9, 2), "decimal(9, 2)"),
    "e": (dbsp.decimal(30, 4), "decimal(30, 4)"), "r": (dbsp.FLOAT32, "float"), "f": (dbsp.FLOAT64, "double"),
    "s": (dbsp.STRING, "varchar"), "p": (dbsp.BOOL, "boolean"), "day": (dbsp.DATE, "date"), "tm": (dbsp.TIME, "time"),
    "ts": (dbsp.TIMESTAMP, "timestamp"), "z": (dbsp.TIMESTAMP_UTC, "timestamptz"), "b": (dbsp.BINARY, "blob"),
    "l": (dbsp.list_of(dbsp.INT64), "bigint[]"), "span": (dbsp.DURATION, "interval"),
}  # fmt: skip
T = dbsp.table("t", {name: types[0] for name, types in COLUMNS.items()})
WHOLE = ("i8", "i32", "i", "u8", "u")
OPERANDS = (*WHOLE, "d", "e", "r", "f", "s", "p", "day", "ts", "b", "span", "1", "1.5", "1e0", "null")
UNITS = ("year", "month", "week", "day", "hour", "minute", "second", "quarter", "dow", "doy", "epoch")
AGGREGATES = (
    "min", "max", "sum", "avg", "count", "median", "mode", "stddev", "stddev_pop", "variance", "var_pop", "bool_and", "bool_or",
    "bit_and", "bit_xor", "any_value", "count_if", "string_agg", "array_agg", "skewness", "kurtosis", "approx_count_distinct",
)  # fmt: skip
BIG = ("sum", "count_if", "sign", "regr_count", "json_array_length", "list_sum", "list_position", "list_indexof")
OTHERS = (
    "log2(f)", "log10(i)", "atan2(f, r)", "power(i, 2)", "i ** 2", "lpad(s, 3, 'x')", "repeat(s, 2)", "s like 'a'", "not p",
    "starts_with(s, 'a')", "position('a' in s)", "instr(s, 'a')", "replace(s, 'a', 'b')", "substr(s, 1, 2)", "left(s, 2)",
    "regexp_matches(s, 'a')", "regexp_extract(s, 'a')", "regexp_replace(s, 'a', 'b')", "split_part(s, 'a', 1)",
    "string_split(s, ',')", "array_to_string(l, ',')", "concat(s, i)", "concat_ws(',', s, i)", "s ->> 'a'",
    "list_position(l, 1)", "list_indexof(l, 1)", "list_concat(l, l)", "list_slice(l, 1, 2)", "hash(i)",
    "hash(s, d)", "list_cat(l, l)",
    "~i", "i << 1", "i >> 1",
    "xor(i, i)", "list_contains(l, 1)", "l[1]", "l[1:2]", "[1, 2]", "range(i)", "generate_series(1, i)", "strptime(s, '%Y')",
    "strftime(ts, '%Y')", "ts at time zone 'UTC'", "z at time zone 'UTC'", "epoch(ts)", "epoch_ms(ts)", "epoch_us(ts)",
    "epoch_ms(i)", "make_timestamp(i)", "make_date(i, i, i)", "to_days(i32)", "to_hours(i)", "ts - ts", "day - day", "day + i32",
    "span + day", "day + span", "row_number() over (order by i)", "rank() over (order by i)", "ntile(3) over (order by i)",
    "cume_dist() over (order by i)", "percent_rank() over (order by i)", "count(*)", "count(*) over ()",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Rule:
    """A sentence of docs/sql.md, and the differences that it explains: by the call, our type and DuckDB's."""

    said: str
    covers: Callable[[str, str, str], bool]


def _decimal(text: str) -> tuple[int, int] | None:
    return tuple(map(int, text[8:-1].split(","))) if text.startswith("DECIMAL") else None  # type: ignore[return-value]


def _called(call: str, *names: str) -> bool:
    return call.startswith(tuple(name if "(" in name else f"{name}(" for name in names))


RULES = (
    Rule(
        "`sum` of whole numbers, `count_if`, `sign`, `regr_count`, `json_array_length`, `list_sum`, `list_position`:"
        " `bigint`",
        lambda call, ours, _: ours == "BIGINT" and _called(call, *BIG),
    ),
    Rule("`//` of decimals: a decimal without places", lambda call, ours, _: " // " in call and ours.endswith(",0)")),
    Rule(
        "a signed beside an unsigned whole number: the least type that holds both",
        lambda call, ours, theirs: (
            (ours, theirs) == ("SMALLINT", "BIGINT") and {"i8", "u8"} <= set(call.replace("(", " ").split())
        ),
    ),
    Rule(
        "decimals: as many digits as the values can need; a constant beside a decimal column has the column's type",
        lambda _, ours, theirs: _decimal(ours) is not None and _decimal(theirs) is not None,
    ),
    Rule(
        "`to_timestamp` of a number: `timestamp`",
        lambda call, ours, _: _called(call, "to_timestamp") and ours == "TIMESTAMP",
    ),
    Rule(
        "`floor`, `ceil` and `round` of whole numbers: their own type",
        lambda call, ours, _: _called(call, "floor", "ceil", "round") and "INT" in ours,
    ),
    Rule("`degrees`, `radians` of `real`: `real`", lambda call, ours, _: call in ("degrees(r)", "radians(r)")),
    Rule(
        "`median`, `quantile_cont` of `real`: `double`",
        lambda call, ours, _: _called(call, "median", "quantile_cont") and ours == "DOUBLE",
    ),
    Rule(
        "an operator with the constant null: the type that it has with another operand",
        lambda call, _, theirs: "null" in call.split() or theirs == '"NULL"',
    ),
    Rule(
        "a constant in `nullif(1, x)`: the type in which the two are compared",
        lambda call, *_: _called(call, "nullif(1"),
    ),
    Rule(
        "lists of whole numbers: the type of their bounds; `[1, 2]` is a `bigint[]`",
        lambda call, ours, _: _called(call, "generate_series") or call.startswith("["),
    ),
)
"""In the order of the documentation."""


def calls() -> Iterator[str]:
    """Every function of one argument, every aggregate, every operator of two."""
    for name in COLUMNS:
        for function in (*NAMES, *AGGREGATES):
            yield f"{function}({name})"
        yield from (f"quantile_cont({name}, 0.25)", f"quantile_disc({name}, 0.25)", f"arg_max({name}, i)", f"-{name}")
        yield from (f"first({name} order by i)", f"sum(distinct {name})", f"round({name}, 1)", f"corr({name}, {name})")
        yield from (f"{window}({name}) over (order by i)" for window in ("lag", "sum", "avg", "first_value"))
        yield from (f"regr_count({name}, {name})", f"regr_slope({name}, {name})", f"covar_pop({name}, {name})")
    for name in ("day", "tm", "ts", "z", "span"):
        yield f"time_bucket(interval 1 day, {name})"
        for unit in UNITS:
            yield from (
                f"date_part('{unit}', {name})",
                f"date_trunc('{unit}', {name})",
                f"date_diff('{unit}', {name}, {name})",
            )
    for one in OPERANDS:
        for other in OPERANDS:
            if one in COLUMNS or other in COLUMNS:
                yield from (f"{one} {operator} {other}" for operator in ("+", "-", "*", "/", "//", "%", "||", "&"))
                yield from (f"{function}({one}, {other})" for function in ("coalesce", "nullif", "greatest"))
                yield f"case when p then {one} else {other} end"
    yield from OTHERS


def _spelled(type_: pa.DataType) -> str:
    """As DuckDB describes it."""
    if pa.types.is_list(type_):
        return f"{_spelled(type_.value_type)}[]"
    return _NAMES.get(str(type_), str(type_).upper().replace("128", "").replace(", ", ","))


_NAMES = {
    "int8": "TINYINT", "int16": "SMALLINT", "int32": "INTEGER", "int64": "BIGINT", "uint8": "UTINYINT", "uint16": "USMALLINT",
    "uint32": "UINTEGER", "uint64": "UBIGINT", "string": "VARCHAR", "bool": "BOOLEAN", "date32[day]": "DATE", "binary": "BLOB",
    "time64[us]": "TIME", "timestamp[us]": "TIMESTAMP", "timestamp[us, tz=UTC]": "TIMESTAMP WITH TIME ZONE",
    "duration[us]": "INTERVAL",
}  # fmt: skip


def differences(every: int = 1) -> list[tuple[str, str, str]]:
    """The calls, one of so many, that both take and whose types differ: the call, ours, DuckDB's."""
    oracle = duckdb.connect()
    oracle.execute("set timezone = 'UTC'")
    oracle.execute(f"create table t ({', '.join(f'{name} {types[1]}' for name, types in COLUMNS.items())})")
    found, compared = [], 0
    for call in list(calls())[::every]:
        try:
            ours = _spelled(dbsp.sql(f"select {call} as x from t", t=T).schema.columns[0].type)
            theirs = str(oracle.execute(f"describe select {call} as x from t").fetchall()[0][1])
        except (dbsp.CircuitError, duckdb.Error):
            continue
        compared += 1
        if ours != theirs:
            found.append((call, ours, theirs))
    assert compared > 1500 / every
    return found


def test_types_are_those_of_duckdb_but_for_what_is_documented() -> None:
    found = differences()
    assert [each for each in found if not any(rule.covers(*each) for rule in RULES)] == []
    assert [rule.said for rule in RULES if not any(rule.covers(*each) for each in found)] == [], "it differs no more"
    documentation = (Path(__file__).parents[2] / "docs" / "sql.md").read_text()
    assert [rule.said for rule in RULES if f"| {rule.said} |" not in documentation] == []


def test_a_wrong_type_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: `nullif` has the type in which its arguments are compared, as it once had."""
    right = functions.type_in
    monkeypatch.setattr(
        functions, "type_in", lambda value, schema: None if schema is T.schema else right(value, schema)
    )
    wrong = [
        call
        for call, ours, theirs in differences(every=11)
        if not any(rule.covers(call, ours, theirs) for rule in RULES)
    ]
    assert any(call.startswith("nullif") for call in wrong)


@pytest.mark.parametrize("call", ["i / s", "p / i", "i - day", "to_timestamp(ts)", "b || s"])
def test_operands_that_have_no_such_operator_are_refused(call: str) -> None:
    with pytest.raises(dbsp.CircuitError, match=r"sql=1:\d+ "):
        dbsp.sql(f"select {call} as x from t", t=T)
