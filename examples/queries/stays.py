"""Stays of guests: which nights a room is taken, and how many."""

from __future__ import annotations

import dbsp
from dbsp import col, when
from examples.queries.gallery import query

stays = dbsp.table(
    "stays",
    {"id": dbsp.INT64, "room": dbsp.INT64, "arrival": dbsp.DATE, "departure": dbsp.DATE},
    primary_key="id",
)


@query("""
    select room, date_trunc('month', night)::date as month, count(*) as nights
    from (select room, unnest(generate_series(arrival, departure - 1, interval 1 day)) as night from stays)
    group by room, month
""")
def nights() -> dbsp.Stream:
    """How many nights of each month was a room booked?"""
    last = (col("departure") - dbsp.days(1)).cast(dbsp.DATE)
    booked = stays.explode(dbsp.sequence(col("arrival"), last, dbsp.days(1)), "night")
    return booked.group_by("room", month=col("night").truncate("month")).aggregate(nights=dbsp.count())


@query("""
    with
      reached as (
        select *, max(departure) over (partition by room order by arrival, id rows between unbounded preceding and 1 preceding)
                  as latest from stays where arrival < departure),
      numbered as (
        select *, count(*) filter (latest is null or arrival > latest)
                  over (partition by room order by arrival, id rows unbounded preceding) as spell from reached)
    select room, min(arrival) as first, max(departure) as last from numbered group by room, spell
""")
def taken() -> dbsp.Stream:
    """From when to when is a room taken without a break? (Stays that meet or overlap make one.)"""
    order = ["arrival", "id"]
    kept = stays.filter(col("arrival") < col("departure")).window("room", order)
    reached = kept.with_columns(latest=dbsp.rolling(dbsp.max("departure"), rows=(None, -1)))
    begins = col("latest").is_null() | (col("arrival") > col("latest"))
    marked = reached.with_columns(begins=when(begins, 1).otherwise(0))
    numbered = marked.window("room", order).with_columns(spell=dbsp.rolling(dbsp.sum("begins"), rows=(None, 0)))
    spells = numbered.group_by("room", "spell").aggregate(first=dbsp.min("arrival"), last=dbsp.max("departure"))
    return spells.drop("spell")
