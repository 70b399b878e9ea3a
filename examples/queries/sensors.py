"""Sensors: gaps that are filled, values far from the middle, three alarms in a row, and how many ran at once."""

from __future__ import annotations

import datetime as dt
from typing import Any

import dbsp
from dbsp import col, lit
from examples.queries.gallery import query

readings = dbsp.table(
    "readings",
    {"id": dbsp.INT64, "sensor": dbsp.STRING, "ts": dbsp.TIMESTAMP, "value": dbsp.FLOAT64},
    primary_key="id",
)
alarms = dbsp.table("alarms", {"id": dbsp.INT64, "sensor": dbsp.STRING, "ts": dbsp.TIMESTAMP}, primary_key="id")
MIDNIGHT = dt.datetime(2024, 1, 1)
jobs = dbsp.table("jobs", {"id": dbsp.INT64, "began": dbsp.TIMESTAMP, "ended": dbsp.TIMESTAMP}, primary_key="id")


@query("""
    select id, sensor, last_value(value ignore nulls) over (
      partition by sensor order by ts, id rows unbounded preceding) as value
    from readings
""")
def carried_forward() -> dbsp.Stream:
    """What is each sensor's value where none came with the reading: the last one known? (`ignore nulls`)"""
    rows = readings.window(partition_by="sensor", order_by=["ts", "id"])
    seen = rows.with_columns(before=dbsp.lag("value", ignore_nulls=True))
    return seen.select("id", "sensor", value=dbsp.coalesce(col("value"), col("before")))


def _smooth(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Half the value, half of what was before; the first stands for itself."""
    level, found = rows[0]["value"], []
    for row in rows:
        level = (level + row["value"]) / 2
        found.append({"id": row["id"], "level": level})
    return found


@query("""
    with numbered as (
      select *, row_number() over (partition by sensor order by ts, id) as n from readings where value is not null)
    select sensor, id, sum(value * 2.0 ** (n - 1)) over (
        partition by sensor order by n rows unbounded preceding) / 2.0 ** n
      + first_value(value) over (partition by sensor order by n) / 2.0 ** n as level
    from numbered
""")
def smoothed() -> dbsp.Stream:
    """What are the values, each mixed half and half with the smoothed one before it? (An exponential moving mean.)"""
    levels = dbsp.fold_aggregate(
        "id", "value", function=_smooth, order_by=["ts", "id"],
        type=dbsp.list_of(dbsp.struct_of({"id": dbsp.INT64, "level": dbsp.FLOAT64})),
    )  # fmt: skip
    known = readings.filter(col("value").is_not_null()).group_by("sensor").aggregate(levels=levels)
    return known.explode("levels").unnest("levels")


@query("""
    select id, sensor, low + (high - low) * epoch_us(ts - low_ts) / epoch_us(high_ts - low_ts) as value from (
      select *, lag(value ignore nulls) over w as low, lead(value ignore nulls) over w as high,
             lag(case when value is not null then ts end ignore nulls) over w as low_ts,
             lead(case when value is not null then ts end ignore nulls) over w as high_ts
      from readings where ts is not null window w as (partition by sensor order by ts, id))
    where value is null and low_ts < high_ts
""")
def interpolated() -> dbsp.Stream:
    """What did a sensor read where no value came, on the straight line between its neighbours that have one?"""
    known_at = dbsp.when(col("value").is_not_null(), col("ts")).otherwise(None)
    rows = readings.filter(col("ts").is_not_null()).window(partition_by="sensor", order_by=["ts", "id"])
    seen = rows.with_columns(
        low=dbsp.lag("value", ignore_nulls=True), high=dbsp.lead("value", ignore_nulls=True),
        low_ts=dbsp.lag(known_at, ignore_nulls=True), high_ts=dbsp.lead(known_at, ignore_nulls=True),
    )  # fmt: skip
    gaps = seen.filter(col("value").is_null(), col("low_ts") < col("high_ts"))
    part = (col("ts") - col("low_ts")) / (col("high_ts") - col("low_ts"))
    return gaps.select("id", "sensor", value=col("low") + (col("high") - col("low")) * part)


@query("""
    select sensor, regr_slope(value, minutes) as slope, regr_intercept(value, minutes) as at_midnight,
           regr_r2(value, minutes) as explained, regr_count(value, minutes) as readings
    from (select sensor, value, (epoch_us(ts) - epoch_us(timestamp '2024-01-01')) / 60e6 as minutes from readings)
    group by sensor having regr_sxx(value, minutes) > 0
""")
def drifts() -> dbsp.Stream:
    """How fast does each sensor drift, by the line of least squares, and how much of its variance does that explain?"""
    minutes = (col("ts") - lit(MIDNIGHT)) / dbsp.minutes(1)
    lines = readings.with_columns(minutes=minutes).group_by("sensor").aggregate(
        slope=dbsp.regr_slope("value", "minutes"), at_midnight=dbsp.regr_intercept("value", "minutes"),
        explained=dbsp.regr_r2("value", "minutes"), readings=dbsp.regr_count("value", "minutes"),
    )  # fmt: skip
    return lines.filter(col("slope").is_not_null())


@query("""
    with moments as (select sensor, avg(value) as mean, stddev_samp(value) as spread from readings group by sensor)
    select id, sensor, (value - mean) / spread as z from readings join moments using (sensor)
    where spread > 0 and abs((value - mean) / spread) > 1.5
""")
def far_from_mean() -> dbsp.Stream:
    """Which readings lie more than one and a half standard deviations from their sensor's mean? (z-scores)"""
    moments = readings.group_by("sensor").aggregate(mean=dbsp.avg("value"), spread=dbsp.stddev("value"))
    apart = readings.join(moments.filter(col("spread") > 0), on="sensor")
    scored = apart.select("id", "sensor", z=(col("value") - col("mean")) / col("spread"))
    return scored.filter(col("z").abs() > 1.5)


@query("""
    with
      middles as (select sensor, median(value) as middle from readings group by sensor),
      apart as (select id, sensor, abs(value - middle) as far from readings join middles using (sensor)),
      spreads as (select sensor, median(far) as spread from apart group by sensor)
    select id, sensor, far / spread as spreads from apart join spreads using (sensor) where far > 2 * spread and spread > 0
""")
def outliers() -> dbsp.Stream:
    """Which readings lie more than two median deviations from their sensor's median?"""
    middles = readings.group_by("sensor").aggregate(middle=dbsp.median("value"))
    apart = readings.join(middles, on="sensor").select("id", "sensor", far=(col("value") - col("middle")).abs())
    spreads = apart.group_by("sensor").aggregate(spread=dbsp.median("far")).filter(col("spread") > 0)
    seen = apart.join(spreads, on="sensor", where=col("far") > 2 * col("spread"))
    return seen.select("id", "sensor", spreads=col("far") / col("spread"))


@query("""
    select sensor, id, ts - before_last as within from (
      select *, value > 0 and lag(value) over w > 0 and lag(value, 2) over w > 0 as high, lag(ts, 2) over w as before_last
      from readings window w as (partition by sensor order by ts, id))
    where high
""")
def three_alarms() -> dbsp.Stream:
    """Where were three readings in a row too high, and how quickly did they come?"""
    rows = readings.window(partition_by="sensor", order_by=["ts", "id"])
    seen = rows.with_columns(last=dbsp.lag("value"), second=dbsp.lag("value", 2), before=dbsp.lag("ts", 2))
    high = seen.filter((col("value") > 0) & (col("last") > 0) & (col("second") > 0))
    return high.select("sensor", "id", within=col("ts") - col("before"))


@query("""
    with
      turns as (select began as ts, 1 as turn from jobs where ended > began
                union all select ended, -1 from jobs where ended > began),
      running as (select date_trunc('hour', ts) as hour,
                         sum(turn) over (order by ts, turn rows unbounded preceding)::bigint as jobs from turns)
    select hour, max(jobs) as most from running group by hour
""")
def at_once() -> dbsp.Stream:
    """How many jobs ran at once, at most, after the begin or end of one in each hour?"""
    real = jobs.filter(col("ended") > col("began"))
    begins, ends = real.select(ts="began", turn=lit(1, dbsp.INT64)), real.select(ts="ended", turn=lit(-1, dbsp.INT64))
    running = begins.union(ends).window(order_by=["ts", "turn"])
    counted = running.with_columns(jobs=dbsp.rolling(dbsp.sum("turn"), rows=(None, 0)))
    return counted.group_by(hour=col("ts").truncate("hour")).aggregate(most=dbsp.max("jobs"))


@query("""
    select a.id, a.sensor, a.ts, r.ts as read_at, r.value
    from alarms a left join readings r
      on r.sensor = a.sensor and abs(epoch_us(r.ts) - epoch_us(a.ts)) <= 600_000_000 and value is not null
    qualify row_number() over (partition by a.id order by abs(epoch_us(r.ts) - epoch_us(a.ts)), r.ts, r.id) = 1
""")
def value_at_alarm() -> dbsp.Stream:
    """What did the sensor read nearest to each alarm, within ten minutes before or after it?"""
    known = readings.filter(col("value").is_not_null())
    near = alarms.asof_join(known, on="ts", by="sensor", direction="nearest", tolerance=dbsp.minutes(10))
    return near.select("id", "sensor", "ts", read_at="ts_right", value="value")
