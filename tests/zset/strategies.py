"""Hypothesis strategies: rows of every type, with the values that break things made likely."""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from dbsp.zset import schema as z
from dbsp.zset.batch import Batch
from dbsp.zset.schema import Arrangement, Column, OrderBy, Schema

FLOATS = [0.0, -0.0, 1.5, -1.5, float("nan"), -float("nan"), float("inf"), -float("inf"), 5e-324]
TEXTS = ["", "a", "b", "eight ch", "eight cha", "eight chb", "\0", "a\0", "ü" * 9]

VALUES: dict[pa.DataType, list[Any]] = {
    z.BOOL: [False, True],
    z.INT8: [-128, -1, 0, 127],
    z.INT16: [-(2**15), 0, 3],
    z.INT32: [-(2**31), 5, 2**31 - 1],
    z.INT64: [-(2**63), -1, 0, 5, 2**63 - 1],
    z.UINT8: [0, 255],
    z.UINT16: [0, 2**16 - 1],
    z.UINT32: [0, 2**32 - 1],
    z.UINT64: [0, 5, 2**63, 2**64 - 1],
    z.FLOAT32: FLOATS[:-1],
    z.FLOAT64: FLOATS,
    z.STRING: TEXTS,
    z.BINARY: [text.encode() for text in TEXTS] + [b"\xff" * 8, b"\xff" * 9],
    z.DATE: [dt.date(1969, 12, 31), dt.date(2026, 3, 1)],
    z.TIME: [dt.time(0, 0), dt.time(23, 59, 59, 999999)],
    z.TIMESTAMP: [dt.datetime(1969, 1, 1), dt.datetime(2026, 3, 1, 12, 0, 0, 1)],
    z.TIMESTAMP_UTC: [dt.datetime(1969, 1, 1, tzinfo=dt.UTC), dt.datetime(2026, 3, 1, tzinfo=dt.UTC)],
    z.DURATION: [dt.timedelta(microseconds=-1), dt.timedelta(days=3)],
    z.decimal(38, 2): [Decimal(t) for t in ("0.00", "-0.01", "92233720368547758.08", "-1e30", "1e30", "2e30")],
    z.list_of(z.INT32): [[], [1], [1, None], [None], [-1, 5, 7], [256]],
    z.list_of(z.STRING): [[], [""], ["a", None], ["a", "b"], ["ab"], ["", ""], [None]],
    z.list_of(z.FLOAT64): [[0.0], [-0.0], [float("nan"), None], [1.5]],
    z.struct_of({"a": z.INT32, "b": z.STRING}): [
        {"a": 1, "b": "x"},
        {"a": None, "b": "x"},
        {"a": None, "b": None},
        {"a": 1},
    ],
    z.struct_of({"f": z.FLOAT64, "s": z.struct_of({"l": z.list_of(z.BOOL)})}): [
        {"f": 0.0, "s": None},
        {"f": -0.0, "s": {"l": None}},
        {"f": float("nan"), "s": {"l": [True, None]}},
        {"f": -float("nan"), "s": {"l": [True, None]}},
        {},
    ],
    z.list_of(z.struct_of({"d": z.decimal(5, 1), "f": z.FLOAT32, "t": z.STRING})): [
        [],
        [None],
        [{"d": Decimal("1.0"), "f": -0.0, "t": ""}, None],
        [{"d": Decimal("1.0"), "f": 0.0, "t": ""}, {"t": "ab"}],
        [{}],
    ],
    z.list_of(z.list_of(z.INT8)): [[], [[]], [None], [[1], [None, 2]], [[1, None], [2]]],
    z.decimal(12, 2): [Decimal("1.00"), Decimal("-1.00"), Decimal("9999999999.99")],
}
TYPES = list(VALUES)
SCALARS = [type_ for type_ in TYPES if z.is_scalar(type_)]


@st.composite
def schemas(draw: st.DrawFn, least: int = 1, of: list[pa.DataType] = TYPES) -> Schema:
    """One to four columns of any types."""
    types = draw(st.lists(st.sampled_from(of), min_size=least, max_size=4))
    return Schema(tuple(Column(f"c{i}", type_, draw(st.booleans())) for i, type_ in enumerate(types)))


@st.composite
def arrangements(draw: st.DrawFn, weights: int = 1) -> Arrangement:
    """Any schema, key and order."""
    schema = draw(schemas())
    names = draw(st.permutations(schema.names))
    key = tuple(names[: draw(st.integers(0, len(names)))])
    order: tuple[OrderBy, ...] = ()
    if draw(st.booleans()):
        order = (OrderBy(draw(st.sampled_from(names)), draw(st.booleans()), draw(st.booleans())),)
    return Arrangement(schema=schema, key=key, order=order, weights=weights)


def values(column: Column) -> st.SearchStrategy[Any]:
    """A value of one column."""
    plain = st.sampled_from(VALUES[column.type])
    return plain if not column.nullable else st.none() | plain


@st.composite
def batches(draw: st.DrawFn, schema: Schema, weights: int = 1, rows_max: int = 40) -> Batch:
    """A loose batch, often a slice of a larger one, so that offsets are not zero."""
    row = st.tuples(*(values(column) for column in schema))
    weight = st.integers(-3, 3) if weights == 1 else st.tuples(*[st.integers(-2, 2)] * weights)
    rows = draw(st.lists(st.tuples(row, weight), max_size=rows_max))
    batch = Batch.from_rows(schema, rows)
    if not rows:
        return Batch.empty(schema, weights)
    return batch.slice(draw(st.integers(0, 3)), len(rows)) if len(rows) > 3 else batch


def canonical(value: Any) -> Any:
    """A value that compares like SQL's `is not distinct from`."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value + 0.0
    if isinstance(value, list):
        return tuple(map(canonical, value))
    if isinstance(value, dict):
        return tuple((name, canonical(field)) for name, field in value.items())
    return value


def contents(batch: Batch) -> dict[tuple[Any, ...], Any]:
    """The Z-set that a batch stands for."""
    total: Counter[Any] = Counter()
    for row, weight in batch.to_rows():
        key = tuple(map(canonical, row))
        total[key] = np.add(total[key], weight)
    return {row: np.array(weight).tolist() for row, weight in total.items() if np.any(weight)}
