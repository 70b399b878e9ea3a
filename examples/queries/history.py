"""Rows that have a history: the latest version, the version in force, what was known at a moment, and what differs."""

from __future__ import annotations

import dbsp
from dbsp import col
from examples.queries.gallery import query

changes = dbsp.table("changes", {"key": dbsp.INT64, "version": dbsp.INT64, "op": dbsp.STRING, "name": dbsp.STRING})
tiers = dbsp.table(
    "tiers",
    {"customer": dbsp.INT64, "since": dbsp.TIMESTAMP, "tier": dbsp.STRING},
    primary_key=["customer", "since"],
)
purchases = dbsp.table(
    "purchases",
    {"id": dbsp.INT64, "customer": dbsp.INT64, "ts": dbsp.TIMESTAMP, "euros": dbsp.INT64},
    primary_key="id",
)
labels = dbsp.table(
    "labels",
    {"id": dbsp.INT64, "customer": dbsp.INT64, "ts": dbsp.TIMESTAMP, "fraud": dbsp.BOOL},
    primary_key="id",
)
snapshots = dbsp.table(
    "snapshots",
    {"key": dbsp.INT64, "ts": dbsp.TIMESTAMP, "name": dbsp.STRING},
    primary_key=["key", "ts"],
)
ours = dbsp.table("ours", {"id": dbsp.INT64, "name": dbsp.STRING})
theirs = dbsp.table("theirs", {"id": dbsp.INT64, "name": dbsp.STRING})


@query("""
    select key, version, name from (
      from changes qualify row_number() over (partition by key order by version desc, op, name) = 1)
    where op <> 'delete'
""")
def latest_version() -> dbsp.Stream:
    """What does a table hold of which only a log of versions comes, twice or out of order?"""
    newest = changes.limit(1, by=dbsp.desc("version"), partition_by="key")
    return newest.filter(col("op") != "delete").select("key", "version", "name")


@query("""
    with valid as (
      select *, lead(since) over (partition by customer order by since) as until from tiers)
    select p.id, p.customer, p.euros, v.tier
    from purchases p left join valid v
      on p.customer = v.customer and p.ts >= v.since and (v.until is null or p.ts < v.until)
""")
def tier_at_purchase() -> dbsp.Stream:
    """Which tier did the customer have when buying? (A slowly changing dimension, of which only the starts are known.)

    A tier with an end of its own would be a `where` of a left join; without one it is the last that began.
    """
    return purchases.asof_join(tiers, on={"ts": "since"}, by="customer").select("id", "customer", "euros", "tier")


@query("""
    select l.id, l.fraud,
           (select tier from tiers t where t.customer = l.customer and t.since <= l.ts order by since desc limit 1) as tier,
           (select count(*) from purchases p
            where p.customer = l.customer and p.ts between l.ts - interval 1 day and l.ts) as purchases_1d,
           (select sum(euros)::bigint from purchases p
            where p.customer = l.customer and p.ts between l.ts - interval 1 day and l.ts) as euros_1d
    from labels l
""")
def training_rows() -> dbsp.Stream:
    """What was known of a customer at the moment of each label, and nothing later? (A feature store's question.)"""
    with_tier = labels.asof_join(tiers, on={"ts": "since"}, by="customer")
    day_before = with_tier.interval_join(
        purchases, on="ts", by="customer", lower=-dbsp.days(1), upper=dbsp.days(0), how="left"
    )
    return day_before.group_by("id", "fraud", "tier").aggregate(
        purchases_1d=dbsp.count("id_right"), euros_1d=dbsp.sum("euros")
    )


@query("""
    with
      beside as (
        select *, lag(name) over w as before, row_number() over w as number
        from snapshots window w as (partition by key order by ts)),
      changed as (select key, name, ts from beside where number = 1 or name is distinct from before)
    select key, name, ts as since, lead(ts) over (partition by key order by ts) as until from changed
""")
def versions() -> dbsp.Stream:
    """From when until when did a key have which name? (A table of versions, SCD 2, out of snapshots.)"""
    rows = snapshots.window(partition_by="key", order_by="ts")
    beside = rows.with_columns(before=dbsp.lag("name"), number=dbsp.row_number())
    same = (col("name") == col("before")).fill_null(False) | (col("name").is_null() & col("before").is_null())
    changed = beside.filter((col("number") == 1) | ~same).select("key", "name", since="ts")
    return changed.window(partition_by="key", order_by="since").with_columns(until=dbsp.lead("since"))


@query("""
    select coalesce(a.id, b.id) as id, coalesce(a.name, b.name) as name, coalesce(a.n, 0) as ours, coalesce(b.n, 0) as theirs
    from (select id, name, count(*) as n from ours group by all) a
    full join (select id, name, count(*) as n from theirs group by all) b
      on a.id is not distinct from b.id and a.name is not distinct from b.name
    where a.n is distinct from b.n
""")
def differences() -> dbsp.Stream:
    """Which rows are in two copies of a table not equally often? Nulls are equal here."""
    both = ours.with_weight("ours").join(theirs.with_weight("theirs"), on=["id", "name"], how="full", null_safe=True)
    counts = both.with_columns(ours=col("ours").fill_null(0), theirs=col("theirs").fill_null(0))
    return counts.filter(col("ours") != col("theirs"))
