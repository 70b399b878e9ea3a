"""Rows of a Python program as the JSON of a push: what JSON lacks has one form, and nothing is turned into its `str()`."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pytest

import dbsp
from dbsp.coordinator.client.bodies import body_of
from dbsp.errors import DataError
from dbsp.io.formats import decode_json

TYPES = {
    "b": dbsp.BINARY, "d": dbsp.DATE, "t": dbsp.TIME, "at": dbsp.TIMESTAMP, "utc": dbsp.TIMESTAMP_UTC, "span": dbsp.DURATION,
    "n": dbsp.INT64, "f": dbsp.FLOAT64, "m": dbsp.decimal(9, 2), "s": dbsp.STRING, "l": dbsp.list_of(dbsp.INT64),
}  # fmt: skip


def test_every_value_comes_in_as_it_was() -> None:
    at = dt.datetime(2024, 2, 29, 10, 0, 0, 5)
    row = {
        "b": b"\x00\xff", "d": at.date(), "t": at.time(), "at": at, "utc": at.replace(tzinfo=ZoneInfo("UTC")),
        "span": dt.timedelta(days=-1, microseconds=3), "n": 3, "f": float("nan"), "m": Decimal("1.50"), "s": "x", "l": [1, None],
    }  # fmt: skip
    table: Any = dbsp.table("t", TYPES)
    (found,) = decode_json(body_of([row]), table.node).batch.to_rows()
    assert repr(found[0]) == repr(tuple(row.values()))


def test_scalars_of_numpy_and_absent_times() -> None:
    row = {
        "n": np.int64(3),
        "f": np.float32(0.5),
        "flag": np.bool_(True),
        "l": np.array([1, 2]),
        "at": pd.NaT,
        "id": UUID(int=1),
    }
    assert json.loads(body_of([row])) == [
        {"n": 3, "f": 0.5, "flag": True, "l": [1, 2], "at": None, "id": "00000000-0000-0000-0000-000000000001"}
    ]


@pytest.mark.parametrize("value", [{1}, object(), 1j])
def test_a_value_that_no_column_takes_is_refused(value: Any) -> None:
    with pytest.raises(DataError, match=f"a value of a kind that no column takes: kind={type(value).__name__}"):
        body_of([{"s": value}])
