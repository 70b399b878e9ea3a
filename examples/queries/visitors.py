"""Visitors of a site: their visits, how far they come, and what brought them."""

from __future__ import annotations

import dbsp
from dbsp import col
from examples.queries.gallery import query

pages = dbsp.table(
    "pages",
    {"id": dbsp.INT64, "visitor": dbsp.STRING, "page": dbsp.STRING, "ts": dbsp.TIMESTAMP},
    primary_key="id",
)
clicks = dbsp.table("clicks", {"visitor": dbsp.STRING, "kind": dbsp.STRING, "ts": dbsp.TIMESTAMP})
adverts = dbsp.table("adverts", {"visitor": dbsp.STRING, "channel": dbsp.STRING, "ts": dbsp.TIMESTAMP})
orders = dbsp.table(
    "orders",
    {"id": dbsp.INT64, "visitor": dbsp.STRING, "ts": dbsp.TIMESTAMP, "euros": dbsp.INT64},
    primary_key="id",
)


@query("""
    with
      marked as (
        select *, ts - lag(ts) over w <= interval 30 minutes as goes_on
        from pages window w as (partition by visitor order by ts, id)),
      numbered as (
        select *, count(*) filter (goes_on is not true)
                  over (partition by visitor order by ts, id rows unbounded preceding) as visit
        from marked)
    select visitor, min(ts) as began, max(ts) as ended, count(*) as pages,
           arg_min(page, (ts, id)) as entry, arg_max(page, (ts, id)) as exit, max(ts) - min(ts) as lasted
    from numbered group by visitor, visit
""")
def visits() -> dbsp.Stream:
    """What are the visits, divided by half an hour of silence: how long, how many pages, from which to which?"""
    order = ["ts", "id"]
    visits = pages.session("ts", dbsp.minutes(30), partition_by="visitor").group_by("visitor", "window_start")
    seen = visits.aggregate(
        began=dbsp.min("ts"),
        ended=dbsp.max("ts"),
        pages=dbsp.count(),
        entry=dbsp.first("page", order_by=order),
        exit=dbsp.last("page", order_by=order),
    )
    return seen.drop("window_start").with_columns(lasted=col("ended") - col("began"))


@query("""
    with
      viewed as (select * from clicks where kind = 'view'),
      filled as (
        select * from clicks c where kind = 'cart'
        and exists (from viewed v where v.visitor = c.visitor and v.ts between c.ts - interval 1 day and c.ts)),
      bought as (
        select * from clicks c where kind = 'buy'
        and exists (from filled f where f.visitor = c.visitor and f.ts between c.ts - interval 1 day and c.ts))
    select step, count(distinct visitor) as visitors from (
      select '1 view' as step, visitor from viewed
      union all select '2 cart', visitor from filled
      union all select '3 buy', visitor from bought)
    group by step
""")
def funnel() -> dbsp.Stream:
    """How many viewed something, filled a cart within a day of that, and bought within a day of that?"""

    def after(kind: str, before: dbsp.Stream) -> dbsp.Stream:
        later = clicks.filter(col("kind") == kind)
        return later.interval_join(before, on="ts", by="visitor", lower=-dbsp.days(1), upper=dbsp.days(0), how="semi")

    viewed = clicks.filter(col("kind") == "view")
    filled = after("cart", viewed)
    bought = after("buy", filled)
    steps = [
        stream.select("visitor", step=dbsp.lit(step))
        for step, stream in {"1 view": viewed, "2 cart": filled, "3 buy": bought}.items()
    ]
    return steps[0].union(*steps[1:]).group_by("step").aggregate(visitors=dbsp.count_distinct("visitor"))


@query("""
    with told as (
      select o.euros, (
        select channel from adverts a
        where a.visitor = o.visitor and a.ts between o.ts - interval 7 days and o.ts
        order by a.ts desc, channel limit 1) as channel
      from orders o)
    select coalesce(channel, 'direct') as channel, count(*) as orders, sum(euros)::bigint as euros
    from told group by 1
""")
def last_touch() -> dbsp.Stream:
    """Which channel brought which sales, if an order is owed to the last advert of the week before it?"""
    told = orders.asof_join(adverts, on="ts", by="visitor", tolerance=dbsp.days(7))
    by_channel = told.group_by(channel=dbsp.coalesce(col("channel"), "direct"))
    return by_channel.aggregate(orders=dbsp.count(), euros=dbsp.sum("euros"))


@query("""
    with firsts as (select visitor, min(ts)::date as cohort from clicks group by visitor)
    select cohort, date_diff('day', cohort, ts) as day, count(distinct visitor) as visitors
    from clicks join firsts using (visitor) group by all
""")
def retention() -> dbsp.Stream:
    """Of those who first came on a day, how many were there so many days later?"""
    firsts = clicks.group_by("visitor").aggregate(cohort=dbsp.min(col("ts").cast(dbsp.DATE)))
    seen = clicks.join(firsts, on="visitor").select(
        "visitor", "cohort", day=dbsp.date_diff("day", col("cohort"), col("ts"))
    )
    return seen.group_by("cohort", "day").aggregate(visitors=dbsp.count_distinct("visitor"))


@query("""
    select date_trunc('week', a.ts) as week, a.channel, count(distinct a.visitor) as told,
           count(distinct o.visitor) as bought, count(distinct o.visitor) / count(distinct a.visitor) as rate
    from adverts a left join orders o on o.visitor = a.visitor and o.ts between a.ts and a.ts + interval 1 day
    where a.visitor is not null group by 1, 2
""")
def advert_rates() -> dbsp.Stream:
    """Of the visitors whom an advert of a channel reached, which part ordered within a day?"""
    reached = adverts.filter(col("visitor").is_not_null())
    buys = orders.select("ts", buyer="visitor", visitor="visitor")
    pairs = reached.interval_join(buys, on="ts", by="visitor", lower=dbsp.hours(0), upper=dbsp.days(1), how="left")
    groups = pairs.group_by("channel", week=col("ts").truncate("week"))
    counts = groups.aggregate(told=dbsp.count_distinct("visitor"), bought=dbsp.count_distinct("buyer"))
    return counts.select("week", "channel", "told", "bought", rate=col("bought") / col("told"))


@query("""
    with
      touches as (select o.id, o.euros, a.channel from orders o join adverts a
                  on o.visitor = a.visitor and a.ts between o.ts - interval 7 days and o.ts),
      counted as (select id, count(*) as n from touches group by id)
    select channel, count(*) as touches, sum(euros / n) as credit from touches join counted using (id) group by channel
""")
def shared_credit() -> dbsp.Stream:
    """Which channel earned what, if each order is shared evenly by the adverts of the week before it?"""
    touches = orders.interval_join(adverts, on="ts", by="visitor", lower=-dbsp.days(7), upper=dbsp.days(0))
    counted = touches.group_by("id").aggregate(n=dbsp.count())
    shared = touches.join(counted, on="id")
    return shared.group_by("channel").aggregate(touches=dbsp.count(), credit=dbsp.sum(col("euros") / col("n")))


@query("""
    with
      days as (select distinct visitor, ts::date as day from clicks),
      beside as (
        select *, lag(day) over w as before, lead(day) over w as behind
        from days window w as (partition by visitor order by day))
    select day, case when before is null then 'new' when before = day - 1 then 'kept' else 'back' end as kind,
           count(*) as visitors from beside group by all
    union all
    select day + 1, 'lost', count(*) from beside where behind is null or behind <> day + 1 group by day
""")
def growth() -> dbsp.Stream:
    """How many visitors of a day are new, kept from the day before, or back after a while, and how many were lost?"""
    days = clicks.select("visitor", day=col("ts").cast(dbsp.DATE)).distinct()
    beside = days.window("visitor", "day").with_columns(before=dbsp.lag("day"), behind=dbsp.lead("day"))
    kept = dbsp.when(col("before") == col("day") - dbsp.days(1), "kept").otherwise("back")
    came = beside.group_by("day", kind=dbsp.when(col("before").is_null(), "new").otherwise(kept))
    following = (col("day") + dbsp.days(1)).cast(dbsp.DATE)
    left = beside.filter(col("behind").is_null() | (col("behind") != following)).select("visitor", day=following)
    lost = left.group_by("day", kind=dbsp.lit("lost"))
    return came.aggregate(visitors=dbsp.count()).union(lost.aggregate(visitors=dbsp.count()))
