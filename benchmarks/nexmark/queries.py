"""Nexmark's queries in the DSL, each beside the SQL that says the same to DuckDB.

Averages truncate to whole numbers, and ties, which the definitions leave open, are broken by all columns, in both. Windows
emit every change. Left out: q12 counts by the clock of the machine that happens to process a row, so it has no answer to
compare with.
"""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import dbsp
from benchmarks.nexmark.tables import auction, bid, person
from dbsp import col

TEN_SECONDS = dt.timedelta(seconds=10)
SIDE_KEYS = 10_000
side = dbsp.table("side", {"key": dbsp.INT64, "value": dbsp.STRING}, primary_key="key")


@dataclass(frozen=True)
class Query:
    """What a query is in both languages; `sql` reads the tables person, auction, bid and side."""

    build: Callable[[], dbsp.Stream]
    sql: str
    stateful: bool = True


def winning(columns: str) -> str:
    """SQL: the bids on every auction while it is open."""
    return f"select {columns} from auction a join bid b on a.id = b.auction where b.ts between a.ts and a.expires"


def bids_in_time() -> dbsp.Stream:
    """Auctions with the bids made while they are open."""
    joined = auction.join(bid, left_on="id", right_on="auction", suffix="_bid")
    return joined.filter(col("ts_bid").between(col("ts"), col("expires")))


def q0() -> dbsp.Stream:
    """All bids, without channel and url."""
    return bid.select("auction", "bidder", "price", "ts", "extra")


def q1() -> dbsp.Stream:
    """In euros."""
    euros = col("price").cast(dbsp.decimal(20, 0)) * decimal.Decimal("0.908")
    return bid.select("auction", "bidder", "ts", "extra", price=euros)


def q2() -> dbsp.Stream:
    """Bids on some auctions."""
    return bid.filter(col("auction") % 123 == 0).select("auction", "price")


def q3() -> dbsp.Stream:
    """Who sells in three states."""
    local = person.filter(col("state").is_in(["OR", "ID", "CA"]))
    sold = auction.filter(col("category") == 10).join(local, left_on="seller", right_on="id", suffix="_person")
    return sold.select("name", "city", "state", "id")


def q4() -> dbsp.Stream:
    """Average winning price per category."""
    final = bids_in_time().group_by("id", "category").aggregate(final=dbsp.max("price"))
    sums = final.group_by("category").aggregate(total=dbsp.sum("final"), n=dbsp.count())
    return sums.select("category", average=col("total") // col("n"))


def q5() -> dbsp.Stream:
    """The hottest auction of every window."""
    hopped = bid.hop("ts", TEN_SECONDS, dt.timedelta(seconds=2))
    counts = hopped.group_by("window_start", "auction").aggregate(num=dbsp.count())
    return counts.top_k(1, by=dbsp.desc("num"), partition_by="window_start").select("auction", "num")


def q6() -> dbsp.Stream:
    """Average price of every seller's winning bids, over the last eleven."""
    wins = (
        bids_in_time()
        .select("id", "seller", "price", "ts_bid")
        .top_k(1, by=[dbsp.desc("price"), "ts_bid"], partition_by="id")
        .window(partition_by="seller", order_by="ts_bid")
        .with_columns(total=dbsp.rolling(dbsp.sum("price"), rows=10), n=dbsp.rolling(dbsp.count(), rows=10))
    )
    return wins.select("seller", average=col("total") // col("n"))


def q7() -> dbsp.Stream:
    """The highest bids of every window."""
    best = bid.tumble("ts", TEN_SECONDS).group_by("window_end").aggregate(price=dbsp.max("price"))
    joined = bid.join(best.rename({"price": "best"}), left_on="price", right_on="best")
    inside = joined.filter(col("ts").between(col("window_end") - TEN_SECONDS, col("window_end")))
    return inside.select("auction", "price", "bidder", "ts", "extra")


def q8() -> dbsp.Stream:
    """New persons who open an auction in the same window."""
    persons = person.tumble("ts", TEN_SECONDS).select("id", "name", "window_start").distinct()
    sellers = auction.tumble("ts", TEN_SECONDS).select("seller", start="window_start").distinct()
    return persons.join(sellers, on={"id": "seller", "window_start": "start"})


def q9() -> dbsp.Stream:
    """Every auction with its winning bid."""
    return bids_in_time().top_k(1, by=[dbsp.desc("price"), "ts_bid"], partition_by="id")


def q10() -> dbsp.Stream:
    """Bids with the folder they are filed in."""
    return q0().with_columns(day=col("ts").strftime("%Y-%m-%d"), minute=col("ts").strftime("%H:%M"))


def q11() -> dbsp.Stream:
    """Bids per session of every bidder."""
    sessions = bid.session("ts", TEN_SECONDS, partition_by="bidder")
    grouped = sessions.group_by("bidder", "window_start", "window_end")
    return grouped.aggregate(n=dbsp.count()).select("bidder", "n", "window_start", "window_end")


def q13() -> dbsp.Stream:
    """Bids joined to a table that does not change."""
    keyed = bid.select("auction", "bidder", "price", "ts", key=col("auction") % SIDE_KEYS)
    return keyed.join(side, on="key").drop("key")


def q14() -> dbsp.Stream:
    """Middling bids with the time of the day."""
    euros = col("price").cast(dbsp.decimal(20, 0)) * decimal.Decimal("0.908")
    hour = col("ts").hour()
    kind = (
        dbsp.when(hour.between(8, 18), "dayTime").when((hour <= 6) | (hour >= 20), "nightTime").otherwise("otherTime")
    )
    priced = bid.with_columns(euros=euros)
    kept = priced.filter((col("euros") > decimal.Decimal(1_000_000)) & (col("euros") < decimal.Decimal(50_000_000)))
    return kept.select("auction", "bidder", "euros", "ts", kind=kind, c_counts=col("extra").regexp_count("c"))


BANDS = {
    "rank1": col("price") < 10_000,
    "rank2": (col("price") >= 10_000) & (col("price") < 1_000_000),
    "rank3": col("price") >= 1_000_000,
}
BANDS_SQL = {
    "rank1": "price < 10000",
    "rank2": "price >= 10000 and price < 1000000",
    "rank3": "price >= 1000000",
}


def in_bands(*columns: str) -> dict[str, Any]:
    """Counts, and distinct counts of columns, in total and per band of prices."""
    found: dict[str, Any] = {"total": dbsp.count()}
    found |= {band: dbsp.count(dbsp.when(inside, 1).otherwise(None)) for band, inside in BANDS.items()}
    for column in columns:
        found[f"{column}s"] = dbsp.count_distinct(column)
        for band, inside in BANDS.items():
            found[f"{column}s_{band}"] = dbsp.count_distinct(dbsp.when(inside, col(column)).otherwise(None))
    return found


def in_bands_sql(*columns: str) -> str:
    """The same in SQL."""
    found = ["count(*) as total", *(f"count(*) filter ({inside}) as {band}" for band, inside in BANDS_SQL.items())]
    for column in columns:
        found.append(f"count(distinct {column})")
        found += [f"count(distinct {column}) filter ({inside})" for inside in BANDS_SQL.values()]
    return ", ".join(found)


def q15() -> dbsp.Stream:
    """Bids per day, in bands."""
    return bid.group_by(day=col("ts").strftime("%Y-%m-%d")).aggregate(**in_bands("bidder", "auction"))


def q16() -> dbsp.Stream:
    """Bids per channel and day, in bands."""
    minute = dbsp.max(col("ts").strftime("%H:%M"))
    grouped = bid.group_by("channel", day=col("ts").strftime("%Y-%m-%d"))
    return grouped.aggregate(minute=minute, **in_bands("bidder", "auction"))


def q17() -> dbsp.Stream:
    """Bids per auction and day, with their prices."""
    prices: dict[str, Any] = {"lowest": dbsp.min("price"), "highest": dbsp.max("price"), "spent": dbsp.sum("price")}
    grouped = bid.group_by("auction", day=col("ts").strftime("%Y-%m-%d")).aggregate(**in_bands(), **prices)
    return grouped.with_columns(average=col("spent") // col("total"))


def q18() -> dbsp.Stream:
    """The latest bid of every bidder on every auction."""
    return bid.top_k(1, by=dbsp.desc("ts"), partition_by=["bidder", "auction"])


def q19() -> dbsp.Stream:
    """The ten highest bids of every auction."""
    return bid.top_k(10, by=dbsp.desc("price"), partition_by="auction", rank="place")


def q20() -> dbsp.Stream:
    """Bids with their auction, in one category."""
    return bid.join(auction.filter(col("category") == 10), left_on="auction", right_on="id", suffix="_auction")


def q21() -> dbsp.Stream:
    """Bids with the number of their channel."""
    channel = col("channel").lower()
    known = dbsp.when(channel == "apple", "0").when(channel == "google", "1").when(channel == "facebook", "2")
    number = known.when(channel == "baidu", "3").otherwise(col("url").regexp_extract("(&|^)channel_id=([^&]*)", 2))
    numbered = bid.select("auction", "bidder", "price", "channel", channel_id=number)
    return numbered.filter(col("channel_id").is_not_null())


def q22() -> dbsp.Stream:
    """Bids with the folders of their url."""
    folders = {f"dir{number}": col("url").split_part("/", number + 3) for number in (1, 2, 3)}
    return bid.select("auction", "bidder", "price", "channel", **folders)


ALL = "auction, bidder, price, channel, url, ts, extra"
TIED_BIDS = "auction, bidder, price, channel, url, extra"
WINDOW = "time_bucket(interval 10 second, ts, timestamp '1970-01-01')"
QUERIES = {
    "q0": Query(q0, "select auction, bidder, price, ts, extra from bid", stateful=False),
    "q1": Query(
        q1,
        "select auction, bidder, ts, extra, (price::decimal(20, 0) * 0.908::decimal(4, 3))::decimal(38, 3) from bid",
        stateful=False,
    ),
    "q2": Query(q2, "select auction, price from bid where auction % 123 = 0", stateful=False),
    "q3": Query(
        q3,
        "select p.name, p.city, p.state, a.id from auction a join person p on a.seller = p.id"
        " where a.category = 10 and p.state in ('OR', 'ID', 'CA')",
    ),
    "q4": Query(
        q4,
        "select category, (sum(final) // count(*))::bigint from (select id, category, max(price) as final"
        f" from ({winning('a.id, category, price')}) group by id, category) group by category",
    ),
    "q5": Query(
        q5,
        "with hopped as (select auction, unnest(generate_series("
        "time_bucket(interval 2 second, ts, timestamp '1970-01-01') - interval 8 second,"
        " time_bucket(interval 2 second, ts, timestamp '1970-01-01'), interval 2 second)) as w from bid)"
        " select auction, num from (select auction, w, count(*) as num from hopped group by auction, w)"
        " qualify row_number() over (partition by w order by num desc, auction) = 1",
    ),
    "q6": Query(
        q6,
        "with wins as (select * from ("
        + winning("a.id, a.seller, b.price, b.ts as ts_bid")
        + ") qualify row_number() over (partition by id order by price desc, ts_bid) = 1)"
        " select seller, (sum(price) over w // count(*) over w)::bigint from wins window w as (partition by seller"
        " order by ts_bid, id, price rows between 10 preceding and current row)",
    ),
    "q7": Query(
        q7,
        f"with best as (select {WINDOW} + interval 10 second as w, max(price) as best from bid group by 1)"
        " select auction, price, bidder, ts, extra from bid join best on price = best"
        " where ts between w - interval 10 second and w",
    ),
    "q8": Query(
        q8,
        f"select id, name, w from (select distinct id, name, {WINDOW} as w from person)"
        f" join (select distinct seller, {WINDOW} as v from auction) on id = seller and w = v",
    ),
    "q9": Query(
        q9,
        "select * from ("
        + winning(
            "a.*, b.bidder, b.price, b.channel, b.url, b.ts as ts_bid, b.extra as extra_bid",
        )
        + ") qualify row_number() over (partition by id order by price desc, ts_bid, bidder, channel, url, extra_bid) = 1",
    ),
    "q10": Query(
        q10,
        "select auction, bidder, price, ts, extra, strftime(ts, '%Y-%m-%d'), strftime(ts, '%H:%M') from bid",
        stateful=False,
    ),
    "q11": Query(
        q11,
        "with begun as (select *, ts - lag(ts) over (partition by bidder order by ts) <= interval 10 second as goes_on"
        " from bid), numbered as (select *, count(*) filter (goes_on is not true) over (partition by bidder order by ts"
        " range between unbounded preceding and current row) as session from begun)"
        " select bidder, count(*), min(ts), max(ts) + interval 10 second from numbered group by bidder, session",
    ),
    "q13": Query(q13, "select auction, bidder, price, ts, value from bid join side on auction % 10000 = key"),
    "q14": Query(
        q14,
        "select auction, bidder, euros, ts, case when hour(ts) between 8 and 18 then 'dayTime'"
        " when hour(ts) <= 6 or hour(ts) >= 20 then 'nightTime' else 'otherTime' end,"
        " len(regexp_extract_all(extra, 'c')) from (select *,"
        " (price::decimal(20, 0) * 0.908::decimal(4, 3))::decimal(38, 3) as euros from bid)"
        " where euros > 1000000 and euros < 50000000",
        stateful=False,
    ),
    "q15": Query(
        q15, f"select strftime(ts, '%Y-%m-%d') as day, {in_bands_sql('bidder', 'auction')} from bid group by day"
    ),
    "q16": Query(
        q16,
        "select channel, strftime(ts, '%Y-%m-%d') as day, max(strftime(ts, '%H:%M')),"
        f" {in_bands_sql('bidder', 'auction')} from bid group by channel, day",
    ),
    "q17": Query(
        q17,
        f"select auction, strftime(ts, '%Y-%m-%d') as day, {in_bands_sql()}, min(price), max(price),"
        " sum(price)::bigint, (sum(price) // count(*))::bigint from bid group by auction, day",
    ),
    "q18": Query(
        q18,
        f"select * from bid qualify row_number() over (partition by bidder, auction order by ts desc, {TIED_BIDS}) = 1",
    ),
    "q19": Query(
        q19,
        f"select *, row_number() over (partition by auction order by price desc, {ALL}) as place from bid"
        " qualify place <= 10",
    ),
    "q20": Query(
        q20,
        "select b.*, a.item, a.description, a.initial, a.reserve, a.ts, a.expires, a.seller, a.category, a.extra"
        " from bid b join auction a on b.auction = a.id where a.category = 10",
    ),
    "q21": Query(
        q21,
        "select * from (select auction, bidder, price, channel, case lower(channel) when 'apple' then '0'"
        " when 'google' then '1' when 'facebook' then '2' when 'baidu' then '3' else"
        " nullif(regexp_extract(url, '(&|^)channel_id=([^&]*)', 2), '') end as channel_id from bid)"
        " where channel_id is not null",
        stateful=False,
    ),
    "q22": Query(
        q22,
        "select auction, bidder, price, channel, split_part(url, '/', 4), split_part(url, '/', 5),"
        " split_part(url, '/', 6) from bid",
        stateful=False,
    ),
}
