"""The year 2013 as a stream of changes, in the order in which the days would have brought them.

A flight is inserted as scheduled (nothing known of departure and arrival), replaced when it has departed, replaced again
when it has arrived, and deleted if it never departs. An hour's weather is inserted when it has been observed. Airlines,
airports and planes are known before the first flight.

The file does not say when each of these was known, so it is taken to be: the schedule twelve hours ahead, a departure
at its own minute, an arrival half an hour of taxiing after the time in the air (by the distance, where that is not
given), a cancellation three hours after the scheduled time. Events of one minute come in the order of the file. All of it is
a function of the tables alone, so each run plays the same stream.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

SCHEDULED, DEPARTED, ARRIVED, CANCELLED, OBSERVED = range(5)
ANNOUNCED_MIN = 12 * 60
CANCELLED_AFTER_MIN = 3 * 60
OBSERVED_AFTER_MIN = 60
TAXI_MIN = 30
MILES_PER_MIN = 7
MINUTE_US = 60_000_000
AT_DEPARTURE = ("dep_time", "dep_delay")
AT_ARRIVAL = ("arr_time", "arr_delay", "air_time")
KNOWN_BEFORE = ("airlines", "airports", "planes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Events:
    """The events of the year in order: `kind[i]` happens to row `row[i]` (of weather if OBSERVED, else of flights)."""

    minute: np.ndarray
    kind: np.ndarray
    row: np.ndarray

    def __len__(self) -> int:
        """How many there are."""
        return len(self.kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Push:
    """Rows for one table: to insert (or replace, by key), or to delete."""

    table: str
    rows: pa.Table
    delete: bool = False


def _minutes(column: pa.ChunkedArray) -> np.ndarray:
    minutes: np.ndarray = column.cast(pa.int64()).to_numpy() // MINUTE_US
    return minutes


def _numbers(column: pa.ChunkedArray) -> np.ndarray:
    numbers: np.ndarray = pc.fill_null(column, 0).to_numpy().astype(np.int64)
    return numbers


def events(tables: dict[str, pa.Table]) -> Events:
    """All events of flights and weather, ordered by time."""
    flights, weather = tables["flights"], tables["weather"]
    scheduled = _minutes(flights["time_hour"]) + _numbers(flights["minute"])
    departed = scheduled + _numbers(flights["dep_delay"])
    in_air = np.where(
        flights["air_time"].is_valid(), _numbers(flights["air_time"]), _numbers(flights["distance"]) // MILES_PER_MIN
    )
    has_departed = flights["dep_time"].is_valid().to_numpy()
    has_arrived = flights["arr_time"].is_valid().to_numpy()
    every = np.ones(len(scheduled), dtype=bool)
    parts = [
        (SCHEDULED, scheduled - ANNOUNCED_MIN, every),
        (DEPARTED, departed, has_departed),
        (ARRIVED, departed + in_air + TAXI_MIN, has_arrived),
        (CANCELLED, scheduled + CANCELLED_AFTER_MIN, ~has_departed),
        (OBSERVED, _minutes(weather["time_hour"]) + OBSERVED_AFTER_MIN, np.ones(weather.num_rows, dtype=bool)),
    ]
    minute = np.concatenate([when[happens] for _, when, happens in parts])
    kind = np.concatenate([np.full(happens.sum(), kind, dtype=np.int8) for kind, _, happens in parts])
    row = np.concatenate([np.flatnonzero(happens) for _, _, happens in parts])
    order = np.lexsort((kind, row, minute))
    return Events(minute=minute[order], kind=kind[order], row=row[order])


def count(tables: dict[str, pa.Table]) -> int:
    """How many changes the whole stream has."""
    return int(sum(tables[name].num_rows for name in KNOWN_BEFORE)) + len(events(tables))


def pushes(tables: dict[str, pa.Table], rows_per_batch: int, first: int = 0) -> Iterator[list[Push]]:
    """The stream in batches: what is known before, then `rows_per_batch` events at a time; without the `first` changes.

    A batch's deletes come after its inserts: a cancelled flight is never announced again, so that changes nothing.
    """
    known_before = sum(tables[name].num_rows for name in KNOWN_BEFORE)
    if first < known_before:
        yield [Push(table=name, rows=tables[name]) for name in KNOWN_BEFORE]
    happened = events(tables)
    for start in range(max(first - known_before, 0), len(happened), rows_per_batch):
        kind, row = (values[start : start + rows_per_batch] for values in (happened.kind, happened.row))
        of_flight = np.isin(kind, (SCHEDULED, DEPARTED, ARRIVED))
        batch = [
            Push(table="flights", rows=_as_known(tables["flights"], row[of_flight], kind[of_flight])),
            Push(table="flights", rows=tables["flights"].select(["id"]).take(row[kind == CANCELLED]), delete=True),
            Push(table="weather", rows=tables["weather"].take(row[kind == OBSERVED])),
        ]
        yield [push for push in batch if push.rows.num_rows]


def remaining(tables: dict[str, pa.Table], count: int) -> dict[str, pa.Table]:
    """The rows of all tables after the first `count` changes, worked out without playing them."""
    happened = events(tables)
    played = slice(0, max(count - sum(tables[name].num_rows for name in KNOWN_BEFORE), 0))
    kind, row = happened.kind[played], happened.row[played]
    flights, of_weather = tables["flights"], kind == OBSERVED
    latest = np.full(flights.num_rows, -1, dtype=np.int8)
    np.maximum.at(latest, row[~of_weather], kind[~of_weather])
    there = np.flatnonzero((latest >= SCHEDULED) & (latest != CANCELLED))
    return tables | {
        "flights": _as_known(flights, there, latest[there]),
        "weather": tables["weather"].take(row[of_weather]),
    }


def _as_known(flights: pa.Table, row: np.ndarray, kind: np.ndarray) -> pa.Table:
    """The flights' rows as they were known when the events happened: what came later is null."""
    table = flights.take(row)
    for names, since in ((AT_DEPARTURE, DEPARTED), (AT_ARRIVAL, ARRIVED)):
        known = pa.array(kind >= since)
        for name in names:
            column = pc.if_else(known, table[name], pa.scalar(None, table[name].type))
            table = table.set_column(table.schema.get_field_index(name), name, column)
    return table
