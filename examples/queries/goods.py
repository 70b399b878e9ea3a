"""Goods: what to order again, what a product is made of, what is bought together."""

from __future__ import annotations

import dbsp
from dbsp import col
from examples.queries.gallery import query

products = dbsp.table("products", {"sku": dbsp.STRING, "name": dbsp.STRING, "least": dbsp.INT64}, primary_key="sku")
moves = dbsp.table("moves", {"sku": dbsp.STRING, "pieces": dbsp.INT64})
parts = dbsp.table(
    "parts", {"whole": dbsp.STRING, "part": dbsp.STRING, "pieces": dbsp.INT64}, primary_key=["whole", "part"]
)
baskets = dbsp.table("baskets", {"basket": dbsp.INT64, "item": dbsp.STRING})


@query("""
    select p.sku, p.name, coalesce(sum(m.pieces), 0)::bigint as on_hand, p.least
    from products p left join moves m using (sku)
    group by all having on_hand < p.least
""")
def to_reorder() -> dbsp.Stream:
    """Of which products is less on hand than there should be, counting those that never moved as none?"""
    on_hand = moves.group_by("sku").aggregate(on_hand=dbsp.sum("pieces"))
    stocked = products.join(on_hand, on="sku", how="left").with_columns(on_hand=col("on_hand").fill_null(0))
    return stocked.filter(col("on_hand") < col("least")).select("sku", "name", "on_hand", "least")


@query("""
    with recursive inside as (
      select whole, part, pieces, part as path from parts
      union
      select i.whole, p.part, i.pieces * p.pieces, i.path || '/' || p.part
      from inside i join parts p on p.whole = i.part)
    select whole, part, sum(pieces)::bigint as pieces from inside group by all
""")
def parts_needed() -> dbsp.Stream:
    """How many pieces of each part go into a whole, over all levels?

    The rows of a recursion are a set; the path keeps two equal ways into a product apart. What is summed up is its result.
    """

    def further(inside: dbsp.Stream) -> dbsp.Stream:
        below = inside.join(parts, on={"part": "whole"})
        return below.select(
            "whole",
            part="part_right",
            pieces=col("pieces") * col("pieces_right"),
            path=col("path") + "/" + col("part_right"),
        )

    inside = dbsp.recursive(parts.with_columns(path=col("part")), further)
    needed: dbsp.Stream = inside.group_by("whole", "part").aggregate(pieces=dbsp.sum("pieces"))
    return needed


@query("""
    with
      once as (select distinct * from baskets),
      items as (select item, count(*) as n from once group by item),
      pairs as (select a.item, b.item as other, count(*) as together
                from once a join once b on a.basket = b.basket and a.item < b.item group by all)
    select p.item, p.other, p.together,
           p.together * (select count(distinct basket) from once) / (i.n * o.n) as lift
    from pairs p join items i on i.item = p.item join items o on o.item = p.other
    where together > 1
""")
def bought_together() -> dbsp.Stream:
    """Which two items are bought together, and how much more often than by chance?"""
    once = baskets.distinct()
    items = once.group_by("item").aggregate(n=dbsp.count())
    everything = once.aggregate(baskets=dbsp.count_distinct("basket"))
    pairs = once.join(once, on="basket", where=col("item") < col("item_right"))
    counted = pairs.group_by("item", other=col("item_right")).aggregate(together=dbsp.count())
    often = counted.filter(col("together") > 1).join(items, on="item").join(items, on={"other": "item"})
    lift = col("together") * col("baskets") / (col("n") * col("n_right"))
    return often.cross_join(everything).select("item", "other", "together", lift=lift)
