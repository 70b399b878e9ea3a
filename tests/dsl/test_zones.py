"""Times on the clocks of a zone, against Python's `zoneinfo`."""

from __future__ import annotations

import datetime as dt
from zoneinfo import ZoneInfo

import hypothesis.strategies as st
import pytest
from hypothesis import example, given

import dbsp
from dbsp import col

ZONES = ("Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe", "Africa/Casablanca", "UTC")
ZONES_OR_FIXED = st.sampled_from([*ZONES, "Etc/GMT+5", "America/St_Johns"])
TIMES = st.datetimes(dt.datetime(2, 1, 1), dt.datetime(9998, 12, 31))
NEAR_CHANGES = st.builds(
    lambda year, month, day, minutes: dt.datetime(year, month, day) + dt.timedelta(minutes=minutes),
    st.sampled_from([1799, 1800, 1916, 1945, 1981, 2011, 2024, 2026, 2037, 2038, 2400, 2799, 2800, 9997]),
    st.sampled_from([3, 4, 10, 11]),
    st.integers(1, 30),
    st.integers(0, 1439),
)


def shown(times: list[dt.datetime | None], expression: dbsp.Expr) -> tuple[list[dt.datetime | None], int]:
    """The values of an expression of `at` in order of the rows, and how many rows failed."""
    table = dbsp.table("t", {"n": dbsp.INT64, "at": dbsp.TIMESTAMP})
    with dbsp.open(dbsp.circuit("zones", {"v": table.select("n", x=expression)})) as run:
        run.push("t", [{"n": number, "at": at} for number, at in enumerate(times)])
        rows = sorted(run.step()["v"].to_rows(), key=lambda row: row[0][0])
        return [values[1] for values, _ in rows], len(run.dead_letters())


def on_clocks(at: dt.datetime | None, zone: str | None) -> dt.datetime | None:
    """What the clocks of the zone show at a time in UTC."""
    return (at and zone and at.replace(tzinfo=dt.UTC).astimezone(ZoneInfo(zone)).replace(tzinfo=None)) or None


def moment(at: dt.datetime | None, zone: str | None) -> dt.datetime | None:
    """When the clocks of the zone show this time first; null if they skip it."""
    then = (at and zone and at.replace(tzinfo=ZoneInfo(zone)).astimezone(dt.UTC)) or None
    return then if then and then.astimezone(ZoneInfo(str(zone))).replace(tzinfo=None) == at else None


@given(times=st.lists(st.one_of(TIMES, NEAR_CHANGES, st.none()), max_size=20), zone=ZONES_OR_FIXED)
@example(times=[dt.datetime(2024, 3, 31, 0, 59, 59, 999_999), dt.datetime(2024, 3, 31, 1)], zone="Europe/Berlin")
@example(times=[dt.datetime(2038, 7, 1), dt.datetime(9990, 7, 1)], zone="America/New_York")
def test_in_zone_is_what_its_clocks_show(times: list[dt.datetime | None], zone: str) -> None:
    found, failed = shown(times, col("at").in_zone(zone))
    assert (found, failed) == ([on_clocks(at, zone) for at in times], 0)


@given(times=st.lists(st.one_of(TIMES, NEAR_CHANGES, st.none()), max_size=20), zone=ZONES_OR_FIXED)
@example(
    times=[dt.datetime(2024, 3, 31, 2), dt.datetime(2024, 3, 31, 2, 59, 59), dt.datetime(2024, 3, 31, 3)],
    zone="Europe/Berlin",
)
@example(
    times=[dt.datetime(2024, 10, 27, 2), dt.datetime(2024, 10, 27, 2, 59), dt.datetime(2024, 10, 27, 3)],
    zone="Europe/Berlin",
)
def test_from_zone_is_the_first_moment_of_this_time(times: list[dt.datetime | None], zone: str) -> None:
    skipped = [at is not None and moment(at, zone) is None for at in times]
    found, failed = shown(times, col("at").from_zone(zone))
    assert found == [moment(at, zone) for at, gone in zip(times, skipped, strict=True) if not gone]
    assert failed == sum(skipped)


@given(rows=st.lists(st.tuples(st.one_of(NEAR_CHANGES, st.none()), st.one_of(ZONES_OR_FIXED, st.none())), max_size=20))
@example(rows=[(dt.datetime(2024, 7, 1), "Nowhere/Land"), (dt.datetime(2024, 7, 1), "Asia/Kathmandu")])
def test_zones_of_a_column_are_those_of_each_row(rows: list[tuple[dt.datetime | None, str | None]]) -> None:
    """As if every row had its zone as a constant; a zone that does not exist fails its row."""
    table = dbsp.table("t", {"n": dbsp.INT64, "at": dbsp.TIMESTAMP, "zone": dbsp.STRING})
    there, back = col("at").in_zone(col("zone")), col("at").from_zone(col("zone")).or_null()
    with dbsp.open(dbsp.circuit("zones", {"v": table.select("n", there=there, back=back)})) as run:
        run.push("t", [{"n": n, "at": at, "zone": zone} for n, (at, zone) in enumerate(rows)])
        run.step()
        found = {row["n"]: (row["there"], row["back"]) for row in run.view("v").to_pylist()}
        failed = len(run.dead_letters())
    wanted = {n: (on_clocks(at, zone), moment(at, zone)) for n, (at, zone) in enumerate(rows) if zone != "Nowhere/Land"}
    assert (found, failed) == (wanted, len(rows) - len(wanted))


def test_a_skipped_time_is_null_where_asked() -> None:
    skipped = dt.datetime(2024, 3, 31, 2, 30)
    assert shown([skipped], col("at").from_zone("Europe/Berlin").or_null()) == ([None], 0)


@pytest.mark.parametrize(("name", "hint"), [("at_timezone", r"\.in_zone"), ("tz_localize", r"\.from_zone")])
def test_other_names_are_answered(name: str, hint: str) -> None:
    with pytest.raises(AttributeError, match=hint):
        getattr(col("at"), name)


def test_what_does_not_fit_is_refused() -> None:
    table = dbsp.table("t", {"at": dbsp.TIMESTAMP, "utc": dbsp.TIMESTAMP_UTC, "day": dbsp.DATE})
    with pytest.raises(dbsp.CircuitError, match='did you mean "Europe/Berlin"'):
        table.select(x=col("at").in_zone("Europe/Berln"))
    with pytest.raises(dbsp.CircuitError, match=r"not take this type.*write \(day\)\.cast\(dbsp\.STRING\)"):
        table.select(x=col("at").in_zone(col("day")))
    with pytest.raises(dbsp.CircuitError, match=r"cast\(dbsp.TIMESTAMP\)"):
        table.select(x=col("day").in_zone("UTC"))
    with pytest.raises(dbsp.CircuitError, match=r"in_zone\(…\)"):
        table.select(x=col("utc").from_zone("UTC"))
    fits = table.select(x=col("utc").in_zone("UTC"), y=col("at").from_zone("UTC"))
    assert [column.type for column in fits.schema] == [dbsp.TIMESTAMP, dbsp.TIMESTAMP_UTC]
