"""Shops: subtotals with ranks, months beside their neighbours, customers above the mean, and the nearest branch."""

from __future__ import annotations

import math

import dbsp
from dbsp import col
from examples.queries.gallery import query

sales = dbsp.table(
    "sales",
    {"shop": dbsp.STRING, "item": dbsp.INT64, "day": dbsp.DATE, "pieces": dbsp.INT64, "cents": dbsp.INT64},
)
items = dbsp.table("items", {"item": dbsp.INT64, "kind": dbsp.STRING, "brand": dbsp.STRING}, primary_key="item")
returns = dbsp.table("returns", {"customer": dbsp.INT64, "shop": dbsp.STRING, "cents": dbsp.INT64})
homes = dbsp.table(
    "homes", {"customer": dbsp.INT64, "north": dbsp.FLOAT64, "east": dbsp.FLOAT64}, primary_key="customer"
)
branches = dbsp.table(
    "branches", {"shop": dbsp.STRING, "north": dbsp.FLOAT64, "east": dbsp.FLOAT64}, primary_key="shop"
)


@query("""
    select * from (
      select kind, brand, year(day) as year, sum(pieces * cents)::bigint as cents, grouping(kind, brand, year(day)) as level,
             rank() over (partition by kind, grouping(kind, brand, year(day)) order by sum(pieces * cents) desc) as place
      from sales join items using (item) group by rollup (kind, brand, year(day)))
    where place <= 2
""")
def best_sellers() -> dbsp.Stream:
    """What sold best: the first two of each level of kind, brand and year, with the subtotals?"""
    sold = sales.join(items, on="item").rollup("kind", "brand", year=col("day").year(), grouping="level")
    totals = sold.aggregate(cents=dbsp.sum(col("pieces") * col("cents"))).select(
        "kind", "brand", "year", "cents", "level"
    )
    places = totals.window(partition_by=["kind", "level"], order_by=dbsp.desc("cents"))
    return places.with_columns(place=dbsp.rank()).filter(col("place") <= 2)


@query("""
    with months as (
      select shop, date_trunc('month', day)::date as month, sum(cents)::bigint as cents from sales group by all)
    select shop, month, cents, avg(cents) over (partition by shop, year(month)) as mean,
           lag(cents) over w as before, lead(cents) over w as after
    from months where shop is not null
    window w as (partition by shop order by month)
    qualify abs(cents - mean) > 0.1 * mean
""")
def unusual_months() -> dbsp.Stream:
    """Which months were a tenth above or below their year's mean, and what were the months beside them?"""
    by_month = sales.filter(col("shop").is_not_null()).group_by("shop", month=col("day").truncate("month"))
    months = by_month.aggregate(cents=dbsp.sum("cents")).with_columns(year=col("month").year())
    whole_year = months.window(partition_by=["shop", "year"])
    means = whole_year.with_columns(mean=dbsp.rolling(dbsp.avg("cents"), rows=(None, None)))
    beside = means.window(partition_by="shop", order_by="month")
    seen = beside.with_columns(before=dbsp.lag("cents"), after=dbsp.lead("cents"))
    return seen.filter((col("cents") - col("mean")).abs() > 0.1 * col("mean")).drop("year")


@query("""
    with
      counts as (select shop, item, count(*) as n from sales group by all),
      usual as (select shop, first(item order by n desc, item) as item from counts group by shop),
      days as (select distinct shop, day from sales where day is not null),
      second as (select distinct shop, nth_value(day, 2) over (
        partition by shop order by day rows between unbounded preceding and unbounded following) as day from days)
    select u.shop, u.item, s.day from usual u join second s on u.shop = s.shop
""")
def usual_item() -> dbsp.Stream:
    """Which item is in most of a shop's sales, and which was its second day with any?"""
    usual = sales.group_by("shop").aggregate(item=dbsp.mode("item"))
    days = sales.select("shop", "day").distinct().filter(col("day").is_not_null())
    second = days.window(partition_by="shop", order_by="day").select("shop", day=dbsp.nth_value("day", 2)).distinct()
    return usual.join(second, on="shop")


@query("""
    with sums as (select customer, shop, sum(cents)::bigint as cents from returns group by all)
    select customer, shop, cents from sums s
    where cents > 1.2 * (select avg(cents) from sums o where o.shop = s.shop)
""")
def returners() -> dbsp.Stream:
    """Which customers return a fifth more than the mean of their shop? (A correlated subquery is a join.)"""
    sums = returns.group_by("customer", "shop").aggregate(cents=dbsp.sum("cents"))
    means = sums.group_by("shop").aggregate(mean=dbsp.avg("cents"))
    return sums.join(means, on="shop", where=col("cents") > 1.2 * col("mean")).select("customer", "shop", "cents")


@query("""
    with
      days as (select shop, day, sum(cents)::bigint as cents from sales where shop is not null and day is not null group by all),
      bounds as (select shop, min(day) as first, max(day) as last from days group by shop),
      every as (select shop, unnest(generate_series(first, last, interval 1 day))::date as day from bounds)
    select shop, day, coalesce(cents, 0) as cents,
           avg(coalesce(cents, 0)) over (partition by shop order by day rows 6 preceding) as week
    from every left join days using (shop, day)
""")
def weekly_means() -> dbsp.Stream:
    """What is sold a day in the mean of seven days, with days without sales as zeros?"""
    known = sales.filter(col("shop").is_not_null() & col("day").is_not_null())
    days = known.group_by("shop", "day").aggregate(cents=dbsp.sum("cents"))
    bounds = known.group_by("shop").aggregate(first=dbsp.min("day"), last=dbsp.max("day"))
    every = bounds.explode(dbsp.sequence(col("first"), col("last"), dbsp.days(1)), "day").select("shop", "day")
    filled = every.join(days, on=["shop", "day"], how="left").with_columns(cents=col("cents").fill_null(0))
    return filled.window(partition_by="shop", order_by="day").with_columns(week=dbsp.rolling(dbsp.avg("cents"), rows=6))


@query("""
    with far as (
      select customer, shop, 12742 * asin(sqrt(
          pow(sin(radians(b.north - h.north) / 2), 2)
          + cos(radians(h.north)) * cos(radians(b.north)) * pow(sin(radians(b.east - h.east) / 2), 2))) as km
      from homes h, branches b)
    select customer, shop, km from far where km < 500
    qualify row_number() over (partition by customer order by km, shop) = 1
""")
def nearest_branch() -> dbsp.Stream:
    """Which branch is nearest to each customer, if one is within 500 km on the sphere?"""

    def radians(degrees: dbsp.Expr) -> dbsp.Expr:
        return degrees * (math.pi / 180)

    pairs = homes.cross_join(branches)
    north, east = radians(col("north")), radians(col("east"))
    north_right, east_right = radians(col("north_right")), radians(col("east_right"))
    across = north.cos() * north_right.cos() * ((east_right - east) / 2).sin() ** 2
    part = ((north_right - north) / 2).sin() ** 2 + across
    far = pairs.select("customer", "shop", km=12742 * part.sqrt().asin()).filter(col("km") < 500)
    return far.limit(1, by=["km", "shop"], partition_by="customer")


@query("""
    with
      totals as (select item, sum(cents) as cents from sales where cents is not null group by item),
      shares as (
        select item, cents, sum(cents) over (order by cents desc, item rows unbounded preceding) as so_far,
               sum(cents) over () as everything from totals)
    select item, cents, case when so_far <= everything * 0.8 then 'A' when so_far <= everything * 0.95 then 'B' else 'C' end
           as class from shares
""")
def classes() -> dbsp.Stream:
    """Which items make the first 80 % of the turnover (A), which the next 15 % (B), and which the rest (C)?"""
    totals = sales.filter(col("cents").is_not_null()).group_by("item").aggregate(cents=dbsp.sum("cents"))
    shares = totals.window(order_by=[dbsp.desc("cents"), "item"]).with_columns(
        so_far=dbsp.rolling(dbsp.sum("cents"), rows=(None, 0)),
        everything=dbsp.rolling(dbsp.sum("cents"), rows=(None, None)),
    )
    share = dbsp.when(col("so_far") <= col("everything") * 0.8, "A").when(
        col("so_far") <= col("everything") * 0.95, "B"
    )
    return shares.select("item", "cents", **{"class": share.otherwise("C")})
