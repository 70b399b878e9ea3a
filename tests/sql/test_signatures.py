"""Calls with wrong counts, wrong types, nulls and constants: each is a value, or is refused in one sentence with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

import dbsp
from dbsp.sql.signatures import NAMED, SIGNATURES, documented

T = dbsp.table(
    "t",
    {
        "i": dbsp.INT64, "d": dbsp.decimal(9, 2), "f": dbsp.FLOAT64, "s": dbsp.STRING, "p": dbsp.BOOL, "day": dbsp.DATE,
        "ts": dbsp.TIMESTAMP, "z": dbsp.TIMESTAMP_UTC, "l": dbsp.list_of(dbsp.INT64), "b": dbsp.BINARY, "span": dbsp.DURATION,
        "st": dbsp.struct_of({"x": dbsp.INT64}),
    },
)  # fmt: skip
VALUES = (
    *(
        "i",
        "d",
        "f",
        "s",
        "p",
        "day",
        "ts",
        "z",
        "l",
        "b",
        "span",
        "st",
        "null",
        "1",
        "-1",
        "0",
        "1.5",
        "'a'",
        "''",
        "true",
    ),
    *("date '2024-01-01'", "interval 1 day", "[1, 2]", "99999999999999999999", "null::varchar", "null::bigint", "'('"),
)
AGGREGATES = (
    *(
        "min",
        "max",
        "sum",
        "avg",
        "count",
        "median",
        "mode",
        "arg_max",
        "arg_min",
        "min_by",
        "max_by",
        "corr",
        "covar_pop",
        "stddev",
    ),
    *(
        "quantile_cont",
        "quantile_disc",
        "bool_and",
        "bit_or",
        "string_agg",
        "array_agg",
        "any_value",
        "regr_slope",
        "first",
        "count_if",
    ),
)
WINDOWS = ("ntile", "lag", "lead", "first_value", "nth_value", "rank", "row_number", "cume_dist")
NAMES = sorted({found.name for found in [*SIGNATURES.values(), *NAMED.values()] if found.name.isidentifier()})


def _calls(name: str, after: str = "") -> list[str]:
    """Calls with every count of arguments to four, and with every value in the place of each of the first three."""
    counts = [f"{name}({', '.join(['i'] * count)}){after}" for count in range(5)]
    ones = [f"{name}({value}){after}" for value in VALUES]
    twos = [f"{name}({one}, {two}){after}" for one in ("s", "i", "ts", "l", "null") for two in VALUES]
    threes = [
        f"{name}({one}, {two}, {three}){after}"
        for one in ("s", "i")
        for two in ("'a'", "1", "null")
        for three in VALUES
    ]
    return counts + ones + twos + threes


@pytest.mark.parametrize("name", [*NAMES, *AGGREGATES, *WINDOWS])
def test_a_call_is_a_value_or_is_refused_with_its_place(name: str) -> None:
    calls = _calls(name, " over (order by i)" if name in WINDOWS else "")
    wrong = [call for call in (*calls[:5], *calls[5::5]) if not _is_answered(call)]
    assert wrong == []


def test_the_documentation_has_every_signature() -> None:
    assert documented() in (Path(__file__).parents[2] / "docs" / "sql.md").read_text()


def _is_answered(call: str) -> bool:
    """Return whether a call is accepted, or refused in one sentence with its text and place."""
    try:
        dbsp.sql(f"select {call} as x from t", t=T)
    except dbsp.CircuitError as error:
        return " text=" in str(error) and " sql=1:" in str(error)
    return True
