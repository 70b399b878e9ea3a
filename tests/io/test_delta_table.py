"""One Delta table: every type that a view can have, what Delta has not, keys with nulls and odd names."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

import dbsp
from dbsp.errors import ConfigError, UnavailableError
from dbsp.io.delta_table import DeltaTable, delta_schema
from dbsp.zset.schema import SCALARS

AT = dt.datetime(2024, 2, 29, 23, 59, 59, 999_999)
VALUES: dict[pa.DataType, list[object]] = {
    dbsp.BOOL: [True, None],
    dbsp.INT8: [-128, 127],
    dbsp.INT16: [-(2**15), None],
    dbsp.INT32: [-(2**31), 2**31 - 1],
    dbsp.INT64: [-(2**63), 2**63 - 1],
    dbsp.UINT8: [255, 0],
    dbsp.UINT16: [2**16 - 1, None],
    dbsp.UINT32: [2**32 - 1, 0],
    dbsp.UINT64: [2**64 - 1, None],
    dbsp.FLOAT32: [0.1, float("inf")],
    dbsp.FLOAT64: [-0.1, None],
    dbsp.STRING: ['it\'s "ä"', ""],
    dbsp.BINARY: [b"\0\xff", None],
    dbsp.DATE: [dt.date(1, 1, 1), dt.date(9999, 12, 31)],
    dbsp.TIMESTAMP: [AT, None],
    dbsp.TIMESTAMP_UTC: [AT.replace(tzinfo=dt.UTC), None],
    dbsp.decimal(38, 10): [Decimal("-1234567890123456789012345678.0123456789"), None],
    pa.list_(dbsp.UINT32): [[1, None, 2**32 - 1], None],
    pa.struct([("a", dbsp.UINT8), ("l", pa.list_(dbsp.STRING))]): [{"a": 255, "l": ["x", None]}, None],
}


def table(folder: Path, schema: pa.Schema, keys: tuple[str, ...] = (), app: str = "a") -> DeltaTable:
    made = DeltaTable(str(folder / "v"), view="v", schema=schema, keys=keys, app=app, options={})
    if made.position() is None:
        made.create(0)
    return made


def held(folder: Path) -> pa.Table:
    return deltalake.DeltaTable(str(folder / "v")).to_pyarrow_table()


def test_every_type_comes_back_as_it_was(tmp_path: Path) -> None:
    columns = {f"c{number}": pa.array(values, type_) for number, (type_, values) in enumerate(VALUES.items())}
    rows = pa.table({"k": [1, 2], **columns})
    made = table(tmp_path, rows.schema, ("k",))
    made.replace(rows, 1)
    assert held(tmp_path).to_pylist() == rows.to_pylist()
    made.merge(rows.slice(1).append_column("x", pa.array([0])).drop_columns(["x"]), pa.array([True]), 2)
    made.merge(
        pa.table({"k": [3], **{name: column.slice(0, 1) for name, column in columns.items()}}), pa.array([True]), 3
    )
    found = {row.pop("k"): row for row in held(tmp_path).to_pylist()}
    assert found[3] == found[1] == {name: column[0].as_py() for name, column in columns.items()}
    assert found[2] == {name: column[1].as_py() for name, column in columns.items()}
    assert made.position() == 3


@pytest.mark.parametrize("type_", sorted(SCALARS - set(VALUES), key=str))
def test_what_delta_has_not_is_named(type_: pa.DataType) -> None:
    """No type of the engine's is left out of this and the test above."""
    for wrapped in (type_, pa.list_(type_), pa.struct([("a", type_)])):
        with pytest.raises(ConfigError, match="no such type: view=v column=c"):
            delta_schema(pa.schema([("c", wrapped)]), "v")


def test_keys_of_odd_names_and_with_nulls(tmp_path: Path) -> None:
    """A null is a value as others are; names are as they are written."""
    schema = pa.schema([("Order", pa.int64()), ('b-"k', pa.string()), ("__gone", pa.string()), ("x", pa.int64())])
    keys = ("Order", 'b-"k')
    made = table(tmp_path, schema, keys)

    def rows(*values: tuple[int | None, str | None, int]) -> pa.Table:
        named = [dict(zip(schema.names, (order, key, None, x), strict=True)) for order, key, x in values]
        return pa.Table.from_pylist(named, schema=schema)

    made.merge(rows((None, None, 1), (None, "a", 2), (1, None, 3), (1, "a", 4)), pa.array([True] * 4), 1)
    made.merge(
        rows((None, None, 10), (None, "a", 0), (1, None, 30), (2, "b", 0)), pa.array([True, False, True, False]), 2
    )
    found = {(row["Order"], row['b-"k']): row["x"] for row in held(tmp_path).to_pylist()}
    assert found == {(None, None): 10, (1, None): 30, (1, "a"): 4}


def test_what_tidying_deletes_no_version_needs_that_is_kept(tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.int64())])
    made = table(tmp_path, schema)
    for number in range(5):
        made.add(pa.table({"k": [number]}), number + 1)
    files = len(list((tmp_path / "v").glob("*.parquet")))
    made.tidy(keep_hours=1)
    assert len(list((tmp_path / "v").glob("*.parquet"))) == files + 1
    made.tidy(keep_hours=0)
    assert len(list((tmp_path / "v").glob("*.parquet"))) == 1
    assert sorted(held(tmp_path).column("k").to_pylist()) == list(range(5))
    assert made.position() == 5


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "v").write_text("a file")
    made = DeltaTable(
        str(tmp_path / "v"), view="v", schema=pa.schema([("k", pa.int64())]), keys=(), app="a", options={}
    )
    with pytest.raises(UnavailableError, match="cannot be written: uri="):
        made.create(0)


def test_another_pipelines_table_is_refused(tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.int64())])
    table(tmp_path, schema)
    with pytest.raises(ConfigError, match="belongs to another pipeline"):
        table(tmp_path, schema, app="b")
    with pytest.raises(ConfigError, match=r"other columns: uri=.* columns=j, k"):
        table(tmp_path, pa.schema([("j", pa.int64())]))
