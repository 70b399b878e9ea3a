"""A circuit whose views have every type of column, and its rows."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

CIRCUIT = """
import dbsp
from dbsp import col, count
from dbsp import sum as total

kinds = dbsp.table("kinds", {
    "id": dbsp.INT64, "small": dbsp.INT16, "whole": dbsp.INT32, "single": dbsp.FLOAT32, "double": dbsp.FLOAT64,
    "exact": dbsp.decimal(20, 4), "text": dbsp.STRING, "flag": dbsp.BOOL, "day": dbsp.DATE, "clock": dbsp.TIME,
    "moment": dbsp.TIMESTAMP, "instant": dbsp.TIMESTAMP_UTC, "span": dbsp.DURATION, "raw": dbsp.BINARY,
    "numbers": dbsp.list_of(dbsp.INT64), "words": dbsp.list_of(dbsp.STRING),
    "place": dbsp.struct_of({"x": dbsp.INT64, "name": dbsp.STRING}),
}, primary_key=["id"])
orders = dbsp.table("orders", {"id": dbsp.INT64, "customer": dbsp.STRING, "amount": dbsp.INT64}, primary_key=["id"])
per_customer = orders.group_by("customer").aggregate(orders=count(), amount=total("amount"))
large = orders.filter(col("amount") > 500)
views = {"all_kinds": kinds, "per_customer": per_customer, "large": large, "spent": orders.select("amount")}
pipeline = dbsp.circuit("kinds", views)
"""
SETTINGS = """
[pipeline]
name = "kinds"
circuit = "circuit.py:pipeline"
runtime = "local"
workers = 1
[http]
enabled = false
[postgres]
port = 0
[step]
max_step_delay_ms = 0
"""
FULL: dict[str, Any] = {
    "id": 1, "small": -7, "whole": 1 << 30, "single": 1.5, "double": -1e-300, "exact": Decimal("-12345.6789"),
    "text": 'it\'s "quoted", \\ and\n∑', "flag": True, "day": date(1999, 2, 28), "clock": time(23, 59, 59, 120),
    "moment": datetime(1999, 12, 31, 23, 59, 59, 500_000), "instant": datetime(2024, 2, 29, 12, tzinfo=UTC),
    "span": timedelta(days=-1, hours=3, microseconds=5), "raw": b"\x00\xff\\", "numbers": [1, None, -3],
    "words": ["a b", "", "null", None, 'q"\\{},'], "place": {"x": 1, "name": "é"},
}  # fmt: skip
ROWS = [FULL, dict.fromkeys(FULL) | {"id": 2}]
