"""Money: running balances, and what was sold at which cost."""

from __future__ import annotations

import dbsp
from dbsp import col
from examples.queries.gallery import query

entries = dbsp.table(
    "entries",
    {"id": dbsp.INT64, "account": dbsp.STRING, "ts": dbsp.TIMESTAMP, "cents": dbsp.INT64},
    primary_key="id",
)
LOTS = {"sku": dbsp.STRING, "ts": dbsp.TIMESTAMP, "pieces": dbsp.INT64}
bought = dbsp.table("bought", {"lot": dbsp.INT64, **LOTS, "cents": dbsp.INT64}, primary_key="lot")
sold = dbsp.table("sold", {"sale": dbsp.INT64, **LOTS}, primary_key="sale")
BOOKED = {"reference": dbsp.STRING, "day": dbsp.DATE, "cents": dbsp.INT64}
booked, paid = dbsp.table("booked", BOOKED), dbsp.table("paid", BOOKED)
contracts = dbsp.table(
    "contracts",
    {"id": dbsp.INT64, "customer": dbsp.INT64, "since": dbsp.DATE, "until": dbsp.DATE, "cents": dbsp.INT64},
    primary_key="id",
)
months = dbsp.table("months", {"month": dbsp.DATE}, primary_key="month")


@query("""
    select *, balance < 0 as overdrawn from (
      select *, sum(cents) over (partition by account order by ts, id rows unbounded preceding)::bigint as balance
      from entries)
""")
def balances() -> dbsp.Stream:
    """What is the balance after each entry, and is it overdrawn? A late entry moves all that follow."""
    ordered = entries.window(partition_by="account", order_by=["ts", "id"])
    running = ordered.with_columns(balance=dbsp.rolling(dbsp.sum("cents"), rows=(None, 0)))
    return running.with_columns(overdrawn=col("balance") < 0)


@query("""
    with
      b as (select *, sum(pieces) over (partition by sku order by ts, lot rows unbounded preceding) as up_to from bought),
      s as (select *, sum(pieces) over (partition by sku order by ts, sale rows unbounded preceding) as up_to from sold)
    select s.sale, b.lot, s.sku,
           (least(s.up_to, b.up_to) - greatest(s.up_to - s.pieces, b.up_to - b.pieces))::bigint as pieces, b.cents
    from s join b
      on s.sku = b.sku and s.up_to - s.pieces < b.up_to and b.up_to - b.pieces < s.up_to
""")
def fifo_costs() -> dbsp.Stream:
    """From which lots did each sale take its pieces, if those that came first go first, and what had they cost?

    Both sides are laid on one line, piece after piece; a sale takes of the lots that it lies beside.
    """

    def on_a_line(stream: dbsp.Stream, key: str) -> dbsp.Stream:
        ordered = stream.window(partition_by="sku", order_by=["ts", key])
        line = ordered.with_columns(end=dbsp.rolling(dbsp.sum("pieces"), rows=(None, 0)))
        return line.with_columns(start=col("end") - col("pieces")).drop("ts", "pieces")

    beside = (col("start") < col("end_right")) & (col("start_right") < col("end"))
    pairs = on_a_line(sold, "sale").join(on_a_line(bought, "lot"), on="sku", where=beside)
    taken = dbsp.least(col("end"), col("end_right")) - dbsp.greatest(col("start"), col("start_right"))
    return pairs.with_columns(pieces=taken).select("sale", "lot", "sku", "pieces", "cents")


@query("""
    select coalesce(b.reference, p.reference) as reference, b.day as day, p.day as paid_day,
           case when p.day is null then 'not paid' when b.day is null then 'not booked'
                when b.cents <> p.cents then 'differs' else 'matches' end as state
    from booked b full join paid p
      on b.reference is not distinct from p.reference and abs(date_diff('day', b.day, p.day)) <= 3
""")
def reconciled() -> dbsp.Stream:
    """What was booked and not paid, paid and not booked, or paid otherwise? Days may differ by three."""
    late = dbsp.date_diff("day", booked["day"], paid["day"])
    both = booked.join(paid, on="reference", how="full", null_safe=True, where=late.between(-3, 3))
    state = (
        dbsp.when(paid["day"].is_null(), "not paid")
        .when(booked["day"].is_null(), "not booked")
        .when(booked["cents"] != paid["cents"], "differs")
        .otherwise("matches")
    )
    return both.select("reference", "day", paid_day=paid["day"], state=state)


@query("""
    select month, count(distinct customer) as customers, coalesce(sum(cents), 0)::bigint as cents
    from months left join contracts c on c.since <= last_day(month) and (c.until is null or c.until > last_day(month))
    group by month
""")
def recurring_revenue() -> dbsp.Stream:
    """How many customers, and what a month do they pay, at the end of every month, of those without any too?"""
    ends = months.with_columns(end=col("month").last_day())
    runs_then = (col("since") <= col("end")) & (col("until").is_null() | (col("until") > col("end")))
    running = ends.cross_join(contracts, where=runs_then).group_by("month")
    sums = running.aggregate(customers=dbsp.count_distinct("customer"), cents=dbsp.sum("cents"))
    every = months.join(sums, on="month", how="left")
    return every.with_columns(customers=col("customers").fill_null(0), cents=col("cents").fill_null(0))
