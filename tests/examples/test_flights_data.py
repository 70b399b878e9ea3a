"""The flights' change stream: its counts, its order, and that it ends in the rows of the files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from dbsp.errors import ConfigError
from examples.flights import changes, data, oracle

FLIGHTS, DEPARTED, ARRIVED, CANCELLED, OBSERVATIONS = 336_776, 328_521, 328_063, 8_255, 26_115


@pytest.fixture(scope="module")
def tables() -> dict[str, pa.Table]:
    return data.read()


def test_the_files_are_read_whole(tables: dict[str, pa.Table]) -> None:
    rows = {name: table.num_rows for name, table in tables.items()}
    assert rows == {"flights": FLIGHTS, "airlines": 16, "airports": 1458, "planes": 3322, "weather": OBSERVATIONS}
    for name, table in tables.items():
        key = list(data.TABLES[name].primary_key)
        keys = table.select(key)
        assert keys.group_by(key).aggregate([]).num_rows == table.num_rows
        assert all(column.null_count == 0 for column in keys.columns)


def test_every_kind_of_change_is_there_as_often_as_it_happened(tables: dict[str, pa.Table]) -> None:
    kinds = np.bincount(changes.events(tables).kind)
    assert kinds.tolist() == [FLIGHTS, DEPARTED, ARRIVED, CANCELLED, OBSERVATIONS]
    assert FLIGHTS + DEPARTED + ARRIVED + CANCELLED == 1_001_615


def test_time_never_goes_back_and_each_flight_lives_in_order(tables: dict[str, pa.Table]) -> None:
    events = changes.events(tables)
    assert (np.diff(events.minute) >= 0).all()
    of_flight = events.kind != changes.OBSERVED
    row, kind = events.row[of_flight], events.kind[of_flight]
    by_row = np.argsort(row, kind="stable")
    same = np.diff(row[by_row]) == 0
    assert (np.diff(kind[by_row])[same] > 0).all()


@pytest.mark.parametrize("rows_per_batch", [50_000, 333_333])
def test_the_stream_ends_in_the_rows_of_the_files(tables: dict[str, pa.Table], rows_per_batch: int) -> None:
    total = 0
    alive = np.zeros(FLIGHTS, dtype=bool)
    latest = np.full(FLIGHTS, -1, dtype=np.int64)
    pieces, weather = [], []
    for batch in changes.pushes(tables, rows_per_batch):
        for push in batch:
            if push.table == "weather":
                weather.append(push.rows)
            if push.table != "flights":
                continue
            ids = push.rows["id"].to_numpy()
            alive[ids] = not push.delete
            if not push.delete:
                latest[ids] = total + np.arange(len(ids))
                total += len(ids)
                pieces.append(push.rows)
    stream = pa.concat_tables(pieces)
    flights = tables["flights"]
    departed = flights.filter(flights["dep_time"].is_valid())
    assert stream.take(latest[alive]).equals(departed)
    assert changes.remaining(tables, changes.count(tables))["flights"].equals(departed)
    assert pa.concat_tables(weather).num_rows == OBSERVATIONS


def test_the_stream_is_the_same_each_time(tables: dict[str, pa.Table]) -> None:
    first, second = (next(b for n, b in enumerate(changes.pushes(tables, 5_000)) if n == 7) for _ in range(2))
    assert all(a.rows.equals(b.rows) for a, b in zip(first, second, strict=True))


def test_the_stream_goes_on_where_it_was_left(tables: dict[str, pa.Table]) -> None:
    whole = [push for batch in changes.pushes(tables, 250_000) for push in batch]
    batches = changes.pushes(tables, 100_000)
    begun = [push for batch in (next(batches) for _ in range(5)) for push in batch]
    sent = sum(push.rows.num_rows for push in begun)
    rest = [push for batch in changes.pushes(tables, 250_000, sent) for push in batch]
    for delete in (False, True):
        expected = pa.concat_tables(push.rows for push in whole if (push.table, push.delete) == ("flights", delete))
        found = pa.concat_tables(push.rows for push in begun + rest if (push.table, push.delete) == ("flights", delete))
        assert found.equals(expected)
    assert sent + sum(push.rows.num_rows for push in rest) == changes.count(tables)
    assert not list(changes.pushes(tables, 100_000, changes.count(tables)))


def test_the_rows_after_part_of_the_stream_are_those_it_brought(tables: dict[str, pa.Table]) -> None:
    rows: dict[int, dict[str, object]] = {}
    sent = 0
    for batch in (b for n, b in enumerate(changes.pushes(tables, 3_000)) if n < 8):
        for push in batch:
            sent += push.rows.num_rows
            if push.table == "flights":
                for row in push.rows.to_pylist():
                    rows.pop(row["id"], None) if push.delete else rows.update({row["id"]: row})
    found = changes.remaining(tables, sent)["flights"].to_pylist()
    assert len(found) > 1_000
    assert found == [rows[number] for number in sorted(rows)]


def test_a_scheduled_flight_says_nothing_of_its_arrival(tables: dict[str, pa.Table]) -> None:
    *_, push = next(b for n, b in enumerate(changes.pushes(tables, 100)) if n == 1)
    assert push.table == "flights"
    assert push.rows["dep_delay"].null_count == push.rows.num_rows


def test_the_oracle_sees_a_difference(tables: dict[str, pa.Table]) -> None:
    right = oracle.recompute(tables)
    assert all(oracle.differences(view, view) == [] for view in right.values())
    wrong = tables | {"flights": tables["flights"].slice(1)}
    found = oracle.differences(oracle.recompute(wrong)["delay_by_airline"], right["delay_by_airline"])
    assert len(found) == 2
    assert "United" in found[0]


def test_an_absent_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "PACKAGE", "no-such-package")
    with pytest.raises(ConfigError, match="no-such-package is not installed"):
        data.folder()


def test_a_folder_without_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        data.read(tmp_path)
