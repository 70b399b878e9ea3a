"""Messages whose key is not the key of their row: each is bad with its reason, since its tombstone would never find the row."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dbsp
from dbsp.io.formats import json_messages
from dbsp.io.formats.json_messages import JsonUpserts
from tests.io.test_message_keys import verdicts

TYPES: dict[str, tuple[Any, list[Any], Any]] = {
    "int": (dbsp.INT64, [0, 7, 2**53 + 1, -(2**63)], int),
    "text": (dbsp.STRING, ["", "7", "tea", 'two "words"\n', "ä\\", '{"schema"', '"delete"'], str),
    "decimal": (dbsp.decimal(10, 2), ["0.00", "1.50", "-12345678.90"], Decimal),
    "date": (dbsp.DATE, ["2024-02-29", "0001-01-01"], dt.date.fromisoformat),
    "double": (dbsp.FLOAT64, [0.5, 3, 1e300], float),
}


def text(name: str, value: Any, spelled: bool) -> str:
    """A value as JSON; decimals also as numbers with other places."""
    return f"{Decimal(value).normalize():f}" if name == "decimal" and spelled else json.dumps(value)


@st.composite
def messages(draw: st.DrawFn) -> tuple[Any, list[tuple[bytes | None, bytes | None, Any]]]:
    """A table of one to three key columns, and messages with what is to become of each."""
    names = draw(st.lists(st.sampled_from(sorted(TYPES)), min_size=1, max_size=3, unique=True))
    columns = {name: TYPES[name][0] for name in names}
    table = dbsp.table("t", {**columns, "n": dbsp.INT64}, primary_key=names).node
    made = []
    for number in range(draw(st.integers(1, 6))):
        row = {name: draw(st.sampled_from(TYPES[name][1])) for name in names}
        other = draw(st.sampled_from([None, *names]))
        key = dict(row)
        if other is not None:
            key[other] = draw(st.sampled_from([each for each in TYPES[other][1] if each != row[other]]))
        parts = [
            f"{json.dumps(name)}: {text(name, key[name], draw(st.booleans()))}" for name in draw(st.permutations(names))
        ]
        alone = len(names) == 1 and draw(st.booleans())
        told = parts[0].partition(": ")[2] if alone else "{" + ", ".join(parts) + "}"
        if draw(st.booleans()):
            told = json.dumps({"schema": None, "payload": json.loads(told)}) if "decimal" not in names else told
        read = tuple(TYPES[name][2](row[name]) for name in names)
        value = json.dumps({**row, "n": number}).encode()
        made.append((value, told.encode(), (0, *read, number) if other is None else other))
        if draw(st.booleans()):
            made.append((value, None, (0, *read, number)))
        if draw(st.booleans()):
            gone = tuple(TYPES[name][2](key[name]) for name in names)
            made.append((None, told.encode(), (1, *gone, None)))
    return table, made


def check_messages(case: tuple[Any, list[tuple[bytes | None, bytes | None, Any]]]) -> None:
    table, sent = case
    values, keys, expected = map(list, zip(*sent, strict=True))
    for (found,), wanted in zip(verdicts(*JsonUpserts(table).decode(values, keys)), expected, strict=True):
        if isinstance(wanted, str):
            assert isinstance(found, str)
            assert found.startswith(f"column {wanted}: ")
            assert found.endswith(" in the key of the message")
        else:
            assert found == wanted


@given(messages())
def test_a_message_is_of_its_key_or_bad(case: Any) -> None:
    check_messages(case)


def test_without_the_comparison_others_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_messages, "under_their_keys", lambda found, *_: found)
    with pytest.raises(AssertionError):
        test_a_message_is_of_its_key_or_bad()


ITEMS = dbsp.table("items", {"id": dbsp.INT64, "n": dbsp.INT64}, primary_key=["id"]).node


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b'{"id": 7.0}', (0, 7, 1)),
        (b"8", "column id: 7 in the value, 8 in the key of the message"),
        (b'{"other": 7}', "the key of the message: column id: missing or null"),
        (b'{"id": "7"}', "the key of the message: column id: expected int64, found a string"),
        (b"customer-7", "the key of the message: the key is not JSON"),
        (b'{"id": 7}, "insert": {"id": 8}', "the key of the message: the key is not JSON"),
        (b"", "the key of the message: the key is not JSON"),
        (b'{"id": 7, "n": "x"}', "the key of the message: column n: expected int64, found a string"),
    ],
)
def test_a_key_that_is_none_is_told_whatever_stands_beside_it(key: bytes, expected: Any) -> None:
    value, good = b'{"id": 7, "n": 1}', b'{"id": 7}'
    for beside in ([], [good], [b"9"]):
        found = verdicts(*JsonUpserts(ITEMS).decode([value] * (1 + len(beside)), [key, *beside]))
        assert found[0] == [expected]


def test_each_row_of_a_message_and_each_delete_is_of_its_key() -> None:
    values = [b'[{"id": 1}, {"id": 2}, {"id": "x"}]', b'{"delete": {"id": 1}}', b'{"delete": {"id": 2}}']
    other = "column id: 2 in the value, 1 in the key of the message"
    found = verdicts(*JsonUpserts(ITEMS).decode(list(values), [b"1"] * 3))
    assert found == [
        [(0, 1, None), other, "column id: expected int64, found a string"], [(1, 1, None)], [other]
    ]  # fmt: skip
