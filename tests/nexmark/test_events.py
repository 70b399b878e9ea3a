"""Events of others are played in the order of their times, under whichever name a column has; what is missing is named."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.nexmark import events
from benchmarks.nexmark.generator import Generator, Tables
from benchmarks.nexmark.tables import COLUMNS

PUBLIC = {
    "email": "emailAddress",
    "card": "credit_card",
    "item": "itemName",
    "initial": "initial_bid",
    "ts": "dateTime",
}


@pytest.fixture
def made() -> Tables:
    (tables,) = Generator(seed=5).batches(10_000, 10_000)
    return tables


def write(folder: Path, tables: Tables) -> None:
    for name, rows in tables.items():
        pq.write_table(rows, folder / f"{name}.parquet")


def test_the_generators_events_come_back_in_its_steps(made: Tables, tmp_path: Path) -> None:
    """Also if columns have their public names and another order, and rows lie backwards."""
    for name, rows in made.items():
        backwards = rows.take(pa.array(range(rows.num_rows - 1, -1, -1))).select(rows.column_names[::-1])
        renamed = backwards.rename_columns([PUBLIC.get(column, column) for column in backwards.column_names])
        pq.write_table(renamed.append_column("more", pa.nulls(rows.num_rows)), tmp_path / f"{name}.parquet")
    found = list(events.split(events.read(tmp_path), 2_500))
    expected = list(Generator(seed=5).batches(10_000, 2_500))
    assert len(found) == len(expected)
    for there, here in zip(found, expected, strict=True):
        assert all(there[name].combine_chunks().equals(here[name].combine_chunks()) for name in COLUMNS)


def test_the_first_events_can_be_taken_and_a_table_may_be_a_folder(made: Tables, tmp_path: Path) -> None:
    write(tmp_path, made)
    (tmp_path / "bid").mkdir()
    (tmp_path / "bid.parquet").rename(tmp_path / "bid" / "part-0.parquet")
    first = events.read(tmp_path, 5_000)
    assert sum(table.num_rows for table in first.values()) == 5_000
    assert first["person"].num_rows == 100


def test_what_is_missing_is_named(made: Tables, tmp_path: Path) -> None:
    write(tmp_path, made | {"bid": made["bid"].drop_columns(["price", "url"])})
    with pytest.raises(events.EventsError, match=r"bid\.parquet missing=\['price', 'url'\] found="):
        events.read(tmp_path)
    (tmp_path / "bid.parquet").unlink()
    with pytest.raises(events.EventsError, match=r"a table is missing: wanted=.*bid\.parquet"):
        events.read(tmp_path)


def test_values_of_another_type_are_named(made: Tables, tmp_path: Path) -> None:
    write(tmp_path, made | {"person": made["person"].set_column(0, "id", made["person"]["name"])})
    with pytest.raises(events.EventsError, match=r"values of another type: file=.*person\.parquet"):
        events.read(tmp_path)
