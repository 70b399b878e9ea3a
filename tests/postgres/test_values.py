"""Every type of column, in text and in binary, as psycopg reads it."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dbsp.coordinator.postgres.rows import _numeric
from tests.pace import examples
from tests.postgres.conftest import Connect
from tests.postgres.kinds import FULL

psycopg = pytest.importorskip("psycopg", reason="needs psycopg: pip install -e '.[test]'")
numeric = pytest.importorskip("psycopg.types.numeric", reason="needs psycopg: pip install -e '.[test]'")

OIDS = {
    "id": 20, "small": 21, "whole": 23, "single": 700, "double": 701, "exact": 1700, "text": 25, "flag": 16, "day": 1082,
    "clock": 1083, "moment": 1114, "instant": 1184, "span": 1186, "raw": 17, "numbers": 1016, "words": 1009, "place": 114,
}  # fmt: skip


@pytest.mark.parametrize("binary", [False, True])
def test_every_type_is_read_as_it_was_pushed(connect: Connect, binary: bool) -> None:
    cursor = connect().cursor(binary=binary)
    cursor.execute("select * from all_kinds order by id")
    names = [column.name for column in cursor.description]
    assert {column.name: column.type_code for column in cursor.description} == OIDS
    full, empty = (dict(zip(names, row, strict=True)) for row in cursor.fetchall())
    assert full == FULL
    assert empty == dict.fromkeys(OIDS) | {"id": 2}


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize(
    "value",
    [
        7, -(1 << 40), 2.5, float("inf"), True, "it's \\ $1 -- ;",
        date(2020, 2, 29), datetime(1999, 1, 2, 3, 4, 5, 6),
        datetime(2024, 5, 6, 7, tzinfo=UTC), timedelta(days=3, microseconds=-5), Decimal("-0.00012"), Decimal("12e9"),
        b"\x00'\\\xff",
    ],
    ids=str,
)  # fmt: skip
def test_a_parameter_comes_back(connect: Connect, binary: bool, value: Any) -> None:
    form = "%b" if binary else "%t"
    assert connect().execute(f"select {form}", [value]).fetchone()[0] == value


def test_parameters_select_rows(connect: Connect) -> None:
    connection = connect()
    asked = "select customer, orders from per_customer where customer = %s and orders >= %s order by 1 limit %s"
    assert connection.execute(asked, ["a", 1, 10]).fetchall() == [("a", 1)]
    assert connection.execute(
        "select customer from per_customer where customer = any(%s)", [["b", "z"]]
    ).fetchall() == [("b",)]
    assert connection.execute("select id from all_kinds where day = %s", [date(1999, 2, 28)]).fetchall() == [(1,)]
    assert connection.execute("select id from all_kinds where day = %s", ["1999-02-28"]).fetchall() == [(1,)]


@settings(max_examples=examples(40), deadline=None)
@given(text=st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=30))
def test_no_text_leaves_its_literal(server: Any, text: str) -> None:
    """A text with quotes, backslashes or dollars is one value, whatever stands in it."""
    with psycopg.connect(host=server.address[0], port=server.address[1], dbname="kinds", autocommit=True) as connection:
        assert connection.execute("select %s, 1", [text]).fetchall() == [(text, 1)]


@given(value=st.decimals(allow_nan=False, allow_infinity=False, places=6, min_value=-(10**20), max_value=10**20))
def test_decimals_in_binary_are_those_that_psycopg_reads(value: Decimal) -> None:
    assert numeric.NumericBinaryLoader(1700).load(_numeric(value)) == value


def test_a_copy_gives_the_same_rows_in_every_form(connect: Connect) -> None:
    connection = connect()
    with connection.cursor().copy(
        'copy (select id, "text", exact, words from all_kinds order by id) to stdout'
    ) as copy:
        copy.set_types(["int8", "text", "numeric", "text[]"])
        assert list(copy.rows()) == [
            tuple(FULL[name] for name in ("id", "text", "exact", "words")),
            (2, None, None, None),
        ]
    with connection.cursor().copy(
        'copy (select id, "text" from all_kinds order by id) to stdout (format binary)'
    ) as copy:
        copy.set_types(["int8", "text"])
        assert list(copy.rows()) == [(1, FULL["text"]), (2, None)]
    with connection.cursor().copy("COPY per_customer (customer, amount) TO STDOUT WITH CSV HEADER") as copy:
        lines = sorted(b"".join(copy).decode().splitlines()[1:])
    assert lines == ["a,10", "b,600"]
