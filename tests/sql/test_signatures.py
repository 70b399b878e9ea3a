"""Calls with wrong counts, wrong types, nulls and constants: each is a value, or is refused in one sentence with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

import dbsp
from dbsp.sql.arguments import ACCEPTED
from dbsp.sql.errors import Script
from dbsp.sql.parser import Parser
from dbsp.sql.parsing import statements_of
from dbsp.sql.signatures import AGGREGATES, NAMED, SIGNATURES, WINDOWS, Signature, documented
from dbsp.sql.walks import parts

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
OVER = {found.name: found for found in WINDOWS.values()}
OF_ROWS = {found.name: found for found in AGGREGATES.values()}
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


@pytest.mark.parametrize("name", [*NAMES, *OF_ROWS, "min_by", "max_by", *OVER])
def test_a_call_is_a_value_or_is_refused_with_its_place(name: str) -> None:
    calls = _calls(name, " over (order by i)" if name in OVER else "")
    wrong = [call for call in (*calls[:5], *calls[5::5]) if not _is_answered(call)]
    assert wrong == []


def test_the_documentation_has_every_signature() -> None:
    assert documented() in (Path(__file__).parents[2] / "docs" / "sql.md").read_text()


WANTED = {
    "any": "i", "bool": "p", "whole": "i", "number": "d", "text": "s", "texts or bytes": "s", "list": "l", "text or list": "l",
    "moment": "ts", "time": "ts", "time or span": "ts", "number or span": "span", "number or moment": "ts", "series": "i",
    "step": "1", "span": "interval 1 day", "no list": "s", "bytes": "b",
    "double": "f", "texts": "string_split(s, ',')",
}  # fmt: skip
CONSTANTS = {"whole": "1", "number": "0.5", "text": "'a'", "any": "1"}
AS_THEY_ARE = {
    "date_part": "date_part('year', ts)", "first": "first(i order by i)", "last": "last(i order by i)",
    "regexp_extract": "regexp_extract(s, 'a', 0, 'i')", "regexp_replace": "regexp_replace(s, 'a', 'b', 'g')",
    "regexp_matches": "regexp_matches(s, 'a', 'i')", "strptime": "strptime(s, '%Y')", "now": "now() > ts",
    "json_array_length": "json_array_length(s, '$')", "date_diff": "date_diff('day', ts, ts)", "epoch_ms": "epoch_ms(i)",
    "log": "log(10, d)",
}  # fmt: skip


@pytest.mark.parametrize(
    "found", [*SIGNATURES.values(), *NAMED.values(), *AGGREGATES.values(), *WINDOWS.values()], ids=str
)
def test_a_call_that_fits_its_signature_is_a_value(found: Signature) -> None:
    if not found.name.isidentifier():
        return
    arguments = [CONSTANTS.get(each.kind) if each.constant else None for each in found.parameters]
    written = [one or WANTED[each.kind] for one, each in zip(arguments, found.parameters, strict=True)]
    call = AS_THEY_ARE.get(found.name, f"{found.name}({', '.join(written)})")
    after = " over (order by i rows between unbounded preceding and unbounded following)" if found.name in OVER else ""
    where = f"select i from t where {call}" if found.name == "now" else f"select {call}{after} as x from t"
    assert dbsp.sql(where, t=T) is not None


LEFT_OVER = [
    *(
        "sha256(s, 1)",
        "any_value(i, 1)",
        "array_agg(i, i)",
        "date_trunc('day', ts, 1)",
        "strftime(ts, '%Y', 1)",
        "mod(i, i, i)",
    ),
    *(
        "initcap(s, s)",
        "epoch_ms(i, i)",
        "log10(d, 1)",
        "list_distinct(l, 1)",
        "xor(i, i, i)",
        "sum(sha256(s, sha256(s)) = s)",
    ),
]


@pytest.mark.parametrize("call", LEFT_OVER)
def test_an_argument_that_the_parser_would_pass_over_is_refused(call: str) -> None:
    with pytest.raises(dbsp.CircuitError, match=r"too many arguments.* text=.* sql=1:\d+ "):
        dbsp.sql(f"select {call} as x from t", t=T)


def test_no_function_of_the_parser_passes_over_an_argument() -> None:
    """Every name that the parser knows, with one to five arguments: each is in the node, or the call is refused."""
    passed = []
    for name in sorted({*Parser.FUNCTIONS, *Parser.FUNCTION_PARSERS}):
        for count in range(1, 6):
            text = f"select {name}({', '.join('abcde'[:count])})"
            try:
                (made,) = statements_of(Script(text), None)
            except dbsp.CircuitError:
                continue
            if not isinstance(made.expressions[0], ACCEPTED):
                continue  # there is no such function: refused by its name
            words = {str(value).casefold() for part in parts(made) for value in part.args.values()}
            passed += [f"{name}/{count}" for letter in "abcde"[1:count] if letter not in words]
    assert passed == []


def _is_answered(call: str) -> bool:
    """Return whether a call is accepted, or refused in one sentence with its text and place."""
    try:
        dbsp.sql(f"select {call} as x from t", t=T)
    except dbsp.CircuitError as error:
        return " text=" in str(error) and " sql=1:" in str(error)
    return True
