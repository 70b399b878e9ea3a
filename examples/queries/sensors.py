"""Sensors: gaps that are filled, values far from the middle, three alarms in a row, and how many ran at once."""

from __future__ import annotations

import dbsp
from dbsp import col, lit
from examples.queries.gallery import query

readings = dbsp.table(
    "readings",
    {"id": dbsp.INT64, "sensor": dbsp.STRING, "ts": dbsp.TIMESTAMP, "value": dbsp.FLOAT64},
    primary_key="id",
)
alarms = dbsp.table("alarms", {"id": dbsp.INT64, "sensor": dbsp.STRING, "ts": dbsp.TIMESTAMP}, primary_key="id")
jobs = dbsp.table("jobs", {"id": dbsp.INT64, "began": dbsp.TIMESTAMP, "ended": dbsp.TIMESTAMP}, primary_key="id")


@query("""
    select id, sensor, last_value(value ignore nulls) over (
      partition by sensor order by ts, id rows unbounded preceding) as value
    from readings
""")
def carried_forward() -> dbsp.Stream:
    """What is each sensor's value where none came with the reading: the last one known? (`ignore nulls`)"""
    order = ["ts", "id"]
    counted = readings.window(partition_by="sensor", order_by=order)
    spans = counted.with_columns(known=dbsp.rolling(dbsp.count("value"), rows=(None, 0)))
    runs = spans.window(partition_by=["sensor", "known"], order_by=order)
    return runs.select("id", "sensor", value=dbsp.first_value("value"))


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
