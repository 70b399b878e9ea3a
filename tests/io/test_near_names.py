"""The reason of a bad row says what was meant."""

from __future__ import annotations

import time

import pytest

import dbsp
from dbsp.io.formats import decode_json
from dbsp.io.formats.near_names import unknown_name

TABLE = dbsp.table(
    "t",
    {"id": dbsp.INT64, "user_id": dbsp.INT64, "at": dbsp.TIMESTAMP_UTC, "day": dbsp.DATE, "wait": dbsp.DURATION,
     "place": dbsp.struct_of({"lat": dbsp.FLOAT64, "lon": dbsp.FLOAT64})},
).node  # fmt: skip


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ('{"id": 1, "userId": 2}', "unknown column: userId; did you mean `user_id`?"),
        ('{"ID": 1}', "unknown column: ID; did you mean `id`?"),
        ('{"id": 1, "note": "x"}', "unknown column: note"),
        ('{"id": 1, "place": {"lng": 2}}', "column place: unknown field: lng; did you mean `lon`?"),
        (
            '{"at": 5}',
            'column at: expected timestamp[us, tz=UTC], found an integer; send a text such as "2026-05-01T10:00:00Z"',
        ),
        (
            '{"wait": true}',
            'column wait: expected duration[us], found a boolean; send a text such as "1 day, 10:00:00"',
        ),
        (
            '{"at": "2026-05-01T10:00:00.123456789Z"}',
            "column at: not a valid timestamp[us, tz=UTC] (at most six digits of a second): 2026-05-01T10:00:00.123456789Z",
        ),
        ('{"id": "1"}', "column id: expected int64, found a string"),
    ],
)
def test_a_reason_says_what_is_meant(row: str, reason: str) -> None:
    assert decode_json(row.encode(), TABLE).bad[0].reason == reason


@pytest.mark.parametrize("name", ["at", "day", "wait"])
def test_the_text_that_is_advised_is_taken(name: str) -> None:
    advised = decode_json(f'{{"{name}": false}}'.encode(), TABLE).bad[0].reason.split("such as ")[1]
    assert not decode_json(f'{{"{name}": {advised}}}'.encode(), TABLE).bad


def test_a_long_name_is_not_compared() -> None:
    known = tuple(f"column_{number}" for number in range(1000))
    begun = time.process_time()
    assert unknown_name("column", "c" * 1_000_000, known) == "unknown column: " + "c" * 1_000_000
    assert time.process_time() - begun < 1
