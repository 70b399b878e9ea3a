"""A market: the best prices of a book, candles of trades, and a pattern in them."""

from __future__ import annotations

import dbsp
from dbsp import col
from examples.queries.gallery import query

book = dbsp.table(
    "book",
    {"id": dbsp.INT64, "share": dbsp.STRING, "side": dbsp.STRING, "cents": dbsp.INT64, "pieces": dbsp.INT64},
    primary_key="id",
)
trades = dbsp.table(
    "trades",
    {"id": dbsp.INT64, "share": dbsp.STRING, "ts": dbsp.TIMESTAMP, "price": dbsp.FLOAT64, "pieces": dbsp.INT64},
    primary_key="id",
)
corrections = dbsp.table(
    "corrections",
    {"seq": dbsp.INT64, "trade": dbsp.INT64, "busted": dbsp.BOOL, "price": dbsp.FLOAT64, "pieces": dbsp.INT64},
    primary_key="seq",
)


@query("""
    with
      levels as (select share, side, cents, sum(pieces)::bigint as pieces from book group by all),
      bids as (select share, max(cents) as bid, arg_max(pieces, cents) as bid_pieces
               from levels where side = 'bid' group by share),
      asks as (select share, min(cents) as ask, arg_min(pieces, cents) as ask_pieces
               from levels where side = 'ask' group by share)
    select share, bid, bid_pieces, ask, ask_pieces, ask - bid as spread from bids full join asks using (share)
""")
def best_prices() -> dbsp.Stream:
    """What are the best bid and ask of each share, and how many pieces stand there?"""
    levels = book.group_by("share", "side", "cents").aggregate(pieces=dbsp.sum("pieces"))
    bids, asks = col("side") == "bid", col("side") == "ask"
    best = levels.group_by("share").aggregate(
        bid=dbsp.max("cents").where(bids),
        bid_pieces=dbsp.arg_max("pieces", by="cents").where(bids),
        ask=dbsp.min("cents").where(asks),
        ask_pieces=dbsp.arg_min("pieces", by="cents").where(asks),
    )
    return best.with_columns(spread=col("ask") - col("bid"))


@query("""
    select share, time_bucket(interval 5 minutes, ts) as window_start,
           arg_min(price, (ts, id)) as open, max(price) as high, min(price) as low, arg_max(price, (ts, id)) as close,
           sum(pieces)::bigint as volume, sum(price * pieces) / sum(pieces) as vwap
    from trades group by all
""")
def candles() -> dbsp.Stream:
    """What are the five-minute candles: open, high, low, close, volume and the mean price by volume?"""
    order = ["ts", "id"]
    windows = trades.tumble("ts", dbsp.minutes(5)).group_by("share", "window_start")
    made = windows.aggregate(
        open=dbsp.first("price", order_by=order),
        high=dbsp.max("price"),
        low=dbsp.min("price"),
        close=dbsp.last("price", order_by=order),
        volume=dbsp.sum("pieces"),
        paid=dbsp.sum(col("price") * col("pieces")),
    )
    return made.with_columns(vwap=col("paid") / col("volume")).drop("paid")


@query("""
    select share, ts, price from (
      select *, lag(price, 2) over w as before_2, lag(price) over w as before_1,
             lead(price) over w as after_1, lead(price, 2) over w as after_2
      from trades window w as (partition by share order by ts, id))
    where before_2 > before_1 and before_1 > price and price < after_1 and after_1 < after_2
""")
def dips() -> dbsp.Stream:
    """Where did a price fall twice and then rise twice? (What others write MATCH_RECOGNIZE for.)"""
    around = trades.window(partition_by="share", order_by=["ts", "id"]).with_columns(
        before_2=dbsp.lag("price", 2),
        before_1=dbsp.lag("price"),
        after_1=dbsp.lead("price"),
        after_2=dbsp.lead("price", 2),
    )
    falls = (col("before_2") > col("before_1")) & (col("before_1") > col("price"))
    rises = (col("price") < col("after_1")) & (col("after_1") < col("after_2"))
    return around.filter(falls & rises).select("share", "ts", "price")


@query("""
    with
      last as (select * from corrections qualify row_number() over (partition by trade order by seq desc) = 1),
      real as (select share, ts, coalesce(c.price, t.price) as price, coalesce(c.pieces, t.pieces) as pieces
               from trades t left join last c on c.trade = t.id where busted is not true)
    select share, time_bucket(interval 15 minutes, ts) as since,
           sum(price * pieces) / sum(pieces) as vwap, sum(pieces)::bigint as pieces
    from real group by all
""")
def corrected_vwap() -> dbsp.Stream:
    """What is the mean price per quarter of an hour, after the last correction of each trade, without the busted ones?"""
    last = corrections.limit(1, by=dbsp.desc("seq"), partition_by="trade")
    both = trades.join(last, on={"id": "trade"}, how="left").filter(~col("busted").fill_null(False))
    real = both.select(
        "share",
        since=col("ts").bucket(dbsp.minutes(15)),
        price=dbsp.coalesce(last["price"], trades["price"]),
        pieces=dbsp.coalesce(last["pieces"], trades["pieces"]),
    )
    sums = real.group_by("share", "since").aggregate(
        paid=dbsp.sum(col("price") * col("pieces")), pieces=dbsp.sum("pieces")
    )
    return sums.select("share", "since", vwap=col("paid") / col("pieces"), pieces="pieces")
