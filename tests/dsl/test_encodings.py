"""Text that is no hexadecimal and no base64 fails its row, and no other."""

from __future__ import annotations

import base64
import binascii

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dbsp
from dbsp.expr.encodings import distance

TABLE = dbsp.table("t", {"s": dbsp.STRING})
WRONG = {"from_hex": ["g", "0x", " 00", "é0"], "from_base64": ["a", "a===", "Zm9 v", "é"]}


@pytest.mark.parametrize(("name", "texts"), WRONG.items(), ids=WRONG)
def test_text_that_cannot_be_read_fails_its_row(name: str, texts: list[str]) -> None:
    read = getattr(dbsp.col("s"), name)()
    with dbsp.open(dbsp.circuit("c", {"v": TABLE.select("s", b=read)})) as run:
        run.push("t", {"s": [*texts, "", None]})
        assert sorted(row["s"] or "" for row in run.step()["v"]) == ["", ""]
        assert len(run.dead_letters()) == len(texts)


@given(st.binary(max_size=20))
def test_bytes_come_back(value: bytes) -> None:
    table = dbsp.table("t", {"b": dbsp.BINARY})
    both = table.select(h=dbsp.col("b").hex(), b=dbsp.col("b").base64())
    with dbsp.open(dbsp.circuit("c", {"v": both})) as run:
        run.push("t", [{"b": value}])
        ((row, _),) = run.step()["v"].to_rows()
    assert row == (binascii.hexlify(value).decode().upper(), base64.b64encode(value).decode())


@given(st.text("ab", max_size=6), st.text("ab", max_size=6), st.text("ab", max_size=6))
def test_a_distance_is_one(one: str, other: str, third: str) -> None:
    assert (distance(one, other) == 0) == (one == other)
    assert distance(one, other) == distance(other, one)
    assert distance(one, third) <= distance(one, other) + distance(other, third)
    assert abs(len(one) - len(other)) <= distance(one, other) <= max(len(one), len(other))
