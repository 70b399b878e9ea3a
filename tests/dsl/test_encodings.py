"""Text that is no hexadecimal and no base64 fails its row, and no other; hashes are the same for ever."""

from __future__ import annotations

import base64
import binascii
from decimal import Decimal

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


KEPT = {"n": -3, "u": 7, "f": 0.5, "s": "a", "b": b"\x00", "d": Decimal("1.50"), "l": [1, None], "p": True}
HASHES = [
    [
        0x5BD1E9955A3C9E37, 0x5BD1E9955A3C9E37, 0x5BD1E9955A3C9E37, 0x5BD1E9955A3C9E37, 0x5BD1E9955A3C9E37,
        0x5BD1E9955A3C9E37, 0x5BD1E9955A3C9E37, 0x5BD1E9955A3C9E37, 0xAA3994C9790CCC65, 0x150D1887285C26A4,
    ],
    [
        0xF75F04CBB5A1A1DD, 0x63CBE1E459320DD7, 0xF456984DD1D8CE6D, 0xA80DB503777E2254, 0x891640E4BD015993,
        0xF1489A29D85C0927, 0x1A8A615BF793A0F5, 0x910A2DEC89025CC1, 0xC5FC43843607A0EA, 0x16B4C0C03FD03765,
    ],
]  # fmt: skip


def test_hashes_never_change() -> None:
    """Users keep what they derive from a hash, so its values are a format."""
    table = dbsp.table(
        "h",
        {
            "n": dbsp.INT64, "u": dbsp.UINT8, "f": dbsp.FLOAT64, "s": dbsp.STRING, "b": dbsp.BINARY,
            "d": dbsp.decimal(9, 2), "l": dbsp.list_of(dbsp.INT64), "p": dbsp.BOOL,
        },
    )  # fmt: skip
    each = {f"h_{name}": dbsp.col(name).hash() for name in KEPT}
    view = table.select(**each, both=dbsp.col("n").hash(dbsp.col("s")), back=dbsp.col("s").hash(dbsp.col("n"), 1))
    found = []
    for workers in (1, 3):
        with dbsp.open(dbsp.circuit("c", {"v": view}), workers=workers) as run:
            run.push("h", [KEPT, dict.fromkeys(KEPT)])
            found.append(sorted(list(row.values()) for row in run.step()["v"]))
    assert found == [HASHES, HASHES]
