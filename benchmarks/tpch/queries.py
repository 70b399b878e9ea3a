"""TPC-H's 22 queries in the DSL, each beside the SQL that says the same to DuckDB.

Parameters are those of the specification's validation run, but where so few rows meet them at small scale that nothing would
be shown (q18 asks for 250 pieces instead of 300). `order by` has no meaning for a view; `limit` is a top-k, with ties broken
by all columns in both.
"""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Callable
from dataclasses import dataclass

import dbsp
from benchmarks.tpch.tables import customer, lineitem, nation, orders, part, partsupp, region, supplier
from dbsp import col, desc

D = decimal.Decimal
REVENUE = col("l_extendedprice") * (1 - col("l_discount"))


@dataclass(frozen=True)
class Query:
    """What a query is in both languages."""

    build: Callable[[], dbsp.Stream]
    sql: str


def _date(year: int, month: int, day: int) -> dt.date:
    return dt.date(year, month, day)


def _nations(of_region: str) -> dbsp.Stream:
    """The nations of one region."""
    return nation.join(region.filter(col("r_name") == of_region), on={"n_regionkey": "r_regionkey"})


def q1() -> dbsp.Stream:
    """Pricing summary."""
    shipped = lineitem.filter(col("l_shipdate") <= _date(1998, 9, 2))
    priced = shipped.with_columns(disc_price=REVENUE, charge=REVENUE * (1 + col("l_tax")))
    return priced.group_by("l_returnflag", "l_linestatus").aggregate(
        sum_qty=dbsp.sum("l_quantity"),
        sum_base_price=dbsp.sum("l_extendedprice"),
        sum_disc_price=dbsp.sum("disc_price"),
        sum_charge=dbsp.sum("charge"),
        avg_qty=dbsp.avg("l_quantity"),
        avg_price=dbsp.avg("l_extendedprice"),
        avg_disc=dbsp.avg("l_discount"),
        count_order=dbsp.count(),
    )


def q2() -> dbsp.Stream:
    """The cheapest supplier of some parts."""
    local = supplier.join(_nations("EUROPE"), on={"s_nationkey": "n_nationkey"})
    offers = partsupp.join(local, on={"ps_suppkey": "s_suppkey"})
    wanted = part.filter((col("p_size") == 15) & col("p_type").like("%BRASS"))
    found = wanted.join(offers, on={"p_partkey": "ps_partkey"})
    least = offers.group_by("ps_partkey").aggregate(least=dbsp.min("ps_supplycost"))
    cheapest = found.join(least, on={"p_partkey": "ps_partkey", "ps_supplycost": "least"})
    shown = cheapest.select("s_acctbal", "s_name", "n_name", "p_partkey", "p_mfgr", "s_address", "s_phone", "s_comment")
    return shown.top_k(100, by=[desc("s_acctbal"), "n_name", "s_name", "p_partkey"])


def q3() -> dbsp.Stream:
    """Unshipped orders of the highest value."""
    day = _date(1995, 3, 15)
    builders = customer.filter(col("c_mktsegment") == "BUILDING")
    placed = orders.filter(col("o_orderdate") < day).join(builders, on={"o_custkey": "c_custkey"})
    waiting = lineitem.filter(col("l_shipdate") > day).join(placed, on={"l_orderkey": "o_orderkey"})
    grouped = waiting.group_by("l_orderkey", "o_orderdate", "o_shippriority").aggregate(revenue=dbsp.sum(REVENUE))
    return grouped.top_k(10, by=[desc("revenue"), "o_orderdate"])


def q4() -> dbsp.Stream:
    """Orders with a late line item."""
    quarter = orders.filter((col("o_orderdate") >= _date(1993, 7, 1)) & (col("o_orderdate") < _date(1993, 10, 1)))
    late = lineitem.filter(col("l_commitdate") < col("l_receiptdate"))
    found = quarter.join(late, on={"o_orderkey": "l_orderkey"}, how="semi")
    return found.group_by("o_orderpriority").aggregate(order_count=dbsp.count())


def q5() -> dbsp.Stream:
    """Revenue from suppliers of the customer's own nation."""
    year = orders.filter((col("o_orderdate") >= _date(1994, 1, 1)) & (col("o_orderdate") < _date(1995, 1, 1)))
    placed = lineitem.join(year, on={"l_orderkey": "o_orderkey"}).join(customer, on={"o_custkey": "c_custkey"})
    local = placed.join(supplier, on={"l_suppkey": "s_suppkey", "c_nationkey": "s_nationkey"})
    named = local.join(_nations("ASIA"), on={"c_nationkey": "n_nationkey"})
    return named.group_by("n_name").aggregate(revenue=dbsp.sum(REVENUE))


def q6() -> dbsp.Stream:
    """What small discounts cost."""
    year = (col("l_shipdate") >= _date(1994, 1, 1)) & (col("l_shipdate") < _date(1995, 1, 1))
    small = col("l_discount").between(D("0.05"), D("0.07")) & (col("l_quantity") < 24)
    return lineitem.filter(year & small).aggregate(revenue=dbsp.sum(col("l_extendedprice") * col("l_discount")))


def q7() -> dbsp.Stream:
    """Trade between two nations."""
    pair = nation.filter(col("n_name").is_in(["FRANCE", "GERMANY"]))
    sellers = supplier.join(pair.select("n_nationkey", supp_nation="n_name"), on={"s_nationkey": "n_nationkey"})
    buyers = customer.join(pair.select("n_nationkey", cust_nation="n_name"), on={"c_nationkey": "n_nationkey"})
    sold = lineitem.filter(col("l_shipdate").between(_date(1995, 1, 1), _date(1996, 12, 31)))
    sold = sold.join(sellers, on={"l_suppkey": "s_suppkey"})
    sold = sold.join(orders.join(buyers, on={"o_custkey": "c_custkey"}), on={"l_orderkey": "o_orderkey"})
    across = sold.filter(col("supp_nation") != col("cust_nation"))
    return across.group_by("supp_nation", "cust_nation", l_year=col("l_shipdate").year()).aggregate(
        revenue=dbsp.sum(REVENUE)
    )


def q8() -> dbsp.Stream:
    """A nation's share of a market."""
    parts = part.filter(col("p_type").like("ECONOMY%STEEL"))
    years = orders.filter(col("o_orderdate").between(_date(1995, 1, 1), _date(1996, 12, 31)))
    sold = lineitem.join(parts, on={"l_partkey": "p_partkey"}).join(years, on={"l_orderkey": "o_orderkey"})
    sold = sold.join(customer, on={"o_custkey": "c_custkey"})
    sold = sold.join(_nations("AMERICA").select("n_nationkey"), on={"c_nationkey": "n_nationkey"})
    sold = sold.join(supplier, on={"l_suppkey": "s_suppkey"})
    sold = sold.join(nation.select("n_nationkey", seller="n_name"), on={"s_nationkey": "n_nationkey"})
    ours = dbsp.when(col("seller") == "BRAZIL", REVENUE).otherwise(D(0))
    sums = sold.group_by(o_year=col("o_orderdate").year()).aggregate(ours=dbsp.sum(ours), whole=dbsp.sum(REVENUE))
    return sums.select("o_year", share=col("ours").cast(dbsp.FLOAT64) / col("whole").cast(dbsp.FLOAT64))


def q9() -> dbsp.Stream:
    """Profit by nation and year."""
    green = part.filter(col("p_name").contains("green"))
    sold = lineitem.join(green, on={"l_partkey": "p_partkey"})
    sold = sold.join(partsupp, on={"l_partkey": "ps_partkey", "l_suppkey": "ps_suppkey"})
    sold = sold.join(orders, on={"l_orderkey": "o_orderkey"}).join(supplier, on={"l_suppkey": "s_suppkey"})
    sold = sold.join(nation, on={"s_nationkey": "n_nationkey"})
    profit = REVENUE - col("ps_supplycost") * col("l_quantity")
    return sold.group_by("n_name", o_year=col("o_orderdate").year()).aggregate(sum_profit=dbsp.sum(profit))


def q10() -> dbsp.Stream:
    """Customers who return most."""
    quarter = orders.filter((col("o_orderdate") >= _date(1993, 10, 1)) & (col("o_orderdate") < _date(1994, 1, 1)))
    returned = lineitem.filter(col("l_returnflag") == "R").join(quarter, on={"l_orderkey": "o_orderkey"})
    named = returned.join(customer, on={"o_custkey": "c_custkey"}).join(nation, on={"c_nationkey": "n_nationkey"})
    keys = ("o_custkey", "c_name", "c_acctbal", "c_phone", "n_name", "c_address", "c_comment")
    return named.group_by(*keys).aggregate(revenue=dbsp.sum(REVENUE)).top_k(20, by=desc("revenue"))


def q11() -> dbsp.Stream:
    """Important stock."""
    german = supplier.join(nation.filter(col("n_name") == "GERMANY"), on={"s_nationkey": "n_nationkey"})
    stock = partsupp.join(german, on={"ps_suppkey": "s_suppkey"})
    value = col("ps_supplycost") * col("ps_availqty")
    whole = stock.aggregate(whole=dbsp.sum(value))
    parts = stock.group_by("ps_partkey").aggregate(value=dbsp.sum(value)).cross_join(whole)
    return parts.filter(col("value") > col("whole") * D("0.005")).select("ps_partkey", "value")


def q12() -> dbsp.Stream:
    """Late shipping by mode and priority."""
    late = lineitem.filter(
        col("l_shipmode").is_in(["MAIL", "SHIP"])
        & (col("l_commitdate") < col("l_receiptdate"))
        & (col("l_shipdate") < col("l_commitdate"))
        & (col("l_receiptdate") >= _date(1994, 1, 1))
        & (col("l_receiptdate") < _date(1995, 1, 1))
    )
    urgent = col("o_orderpriority").is_in(["1-URGENT", "2-HIGH"])
    return (
        late.join(orders, on={"l_orderkey": "o_orderkey"})
        .group_by("l_shipmode")
        .aggregate(high=dbsp.sum(dbsp.when(urgent, 1).otherwise(0)), low=dbsp.sum(dbsp.when(urgent, 0).otherwise(1)))
    )


def q13() -> dbsp.Stream:
    """Customers by their number of orders."""
    plain = orders.filter(~col("o_comment").like("%special%requests%"))
    placed = customer.join(plain, on={"c_custkey": "o_custkey"}, how="left")
    counts = placed.group_by("c_custkey").aggregate(c_count=dbsp.count("o_orderkey"))
    return counts.group_by("c_count").aggregate(custdist=dbsp.count())


def q14() -> dbsp.Stream:
    """The effect of promotions."""
    month = lineitem.filter((col("l_shipdate") >= _date(1995, 9, 1)) & (col("l_shipdate") < _date(1995, 10, 1)))
    sold = month.join(part, on={"l_partkey": "p_partkey"})
    promo = dbsp.when(col("p_type").like("PROMO%"), REVENUE).otherwise(D(0))
    sums = sold.aggregate(promo=dbsp.sum(promo), whole=dbsp.sum(REVENUE))
    share = col("promo").cast(dbsp.FLOAT64) * 100.0 / col("whole").cast(dbsp.FLOAT64)
    return sums.select(promo_revenue=share)


def q15() -> dbsp.Stream:
    """The best supplier of a quarter."""
    quarter = lineitem.filter((col("l_shipdate") >= _date(1996, 1, 1)) & (col("l_shipdate") < _date(1996, 4, 1)))
    revenue = quarter.group_by("l_suppkey").aggregate(total=dbsp.sum(REVENUE))
    best = revenue.aggregate(best=dbsp.max("total"))
    winners = revenue.join(best, on={"total": "best"}).join(supplier, on={"l_suppkey": "s_suppkey"})
    return winners.select("l_suppkey", "s_name", "s_address", "s_phone", "total")


def q16() -> dbsp.Stream:
    """How many suppliers can deliver."""
    sizes = [49, 14, 23, 45, 19, 3, 36, 9]
    wanted = part.filter(
        (col("p_brand") != "Brand#45") & ~col("p_type").like("MEDIUM POLISHED%") & col("p_size").is_in(sizes)
    )
    blamed = supplier.filter(col("s_comment").like("%Customer%Complaints%"))
    offers = partsupp.join(blamed, on={"ps_suppkey": "s_suppkey"}, how="anti")
    found = offers.join(wanted, on={"ps_partkey": "p_partkey"})
    return found.group_by("p_brand", "p_type", "p_size").aggregate(supplier_cnt=dbsp.count_distinct("ps_suppkey"))


def q17() -> dbsp.Stream:
    """What small orders bring."""
    parts = part.filter((col("p_brand") == "Brand#23") & (col("p_container") == "MED BOX"))
    sold = lineitem.join(parts, on={"l_partkey": "p_partkey"})
    average = lineitem.group_by("l_partkey").aggregate(average=dbsp.avg("l_quantity"))
    small = sold.join(average, on="l_partkey").filter(col("l_quantity").cast(dbsp.FLOAT64) < 0.2 * col("average"))
    sums = small.aggregate(total=dbsp.sum("l_extendedprice"))
    return sums.select(avg_yearly=col("total").cast(dbsp.FLOAT64) / 7.0)


def q18() -> dbsp.Stream:
    """Customers with large orders."""
    large = lineitem.group_by("l_orderkey").aggregate(quantity=dbsp.sum("l_quantity")).filter(col("quantity") > 250)
    named = orders.join(large, on={"o_orderkey": "l_orderkey"}).join(customer, on={"o_custkey": "c_custkey"})
    shown = named.select("c_name", "o_custkey", "o_orderkey", "o_orderdate", "o_totalprice", "quantity")
    return shown.top_k(100, by=[desc("o_totalprice"), "o_orderdate"])


def q19() -> dbsp.Stream:
    """Revenue of parts handled in certain ways."""
    sold = lineitem.filter(
        col("l_shipmode").is_in(["AIR", "REG AIR"]) & (col("l_shipinstruct") == "DELIVER IN PERSON")
    ).join(part, on={"l_partkey": "p_partkey"})

    def branch(brand: str, containers: list[str], low: int, size: int) -> dbsp.Expr:
        return (
            (col("p_brand") == brand)
            & col("p_container").is_in(containers)
            & col("l_quantity").between(low, low + 10)
            & col("p_size").between(1, size)
        )

    wanted = (
        branch("Brand#12", ["SM CASE", "SM BOX", "SM PACK", "SM PKG"], 1, 25)
        | branch("Brand#23", ["MED BAG", "MED BOX", "MED PKG", "MED PACK"], 10, 40)
        | branch("Brand#34", ["LG CASE", "LG BOX", "LG PACK", "LG PKG"], 20, 50)
    )
    return sold.filter(wanted).aggregate(revenue=dbsp.sum(REVENUE))


def q20() -> dbsp.Stream:
    """Suppliers with too much stock."""
    year = lineitem.filter((col("l_shipdate") >= _date(1994, 1, 1)) & (col("l_shipdate") < _date(1995, 1, 1)))
    sold = year.group_by("l_partkey", "l_suppkey").aggregate(quantity=dbsp.sum("l_quantity"))
    forest = part.filter(col("p_name").starts_with("forest"))
    stock = partsupp.join(forest, on={"ps_partkey": "p_partkey"}, how="semi")
    stock = stock.join(sold, on={"ps_partkey": "l_partkey", "ps_suppkey": "l_suppkey"})
    much = stock.filter(col("ps_availqty") > col("quantity") * D("0.5"))
    canadian = supplier.join(nation.filter(col("n_name") == "CANADA"), on={"s_nationkey": "n_nationkey"})
    return canadian.join(much, on={"s_suppkey": "ps_suppkey"}, how="semi").select("s_name", "s_address")


def q21() -> dbsp.Stream:
    """Suppliers who alone kept an order waiting."""
    late = lineitem.filter(col("l_receiptdate") > col("l_commitdate"))
    other = col("l_suppkey") != col("l_suppkey_right")
    arabian = supplier.join(nation.filter(col("n_name") == "SAUDI ARABIA"), on={"s_nationkey": "n_nationkey"})
    waiting = late.join(orders.filter(col("o_orderstatus") == "F"), on={"l_orderkey": "o_orderkey"}, how="semi")
    waiting = waiting.join(arabian.select("s_suppkey", "s_name"), on={"l_suppkey": "s_suppkey"})
    waiting = waiting.join(lineitem, on="l_orderkey", how="semi", where=other)
    alone = waiting.join(late, on="l_orderkey", how="anti", where=other)
    return alone.group_by("s_name").aggregate(numwait=dbsp.count()).top_k(100, by=[desc("numwait"), "s_name"])


def q22() -> dbsp.Stream:
    """Customers who could be won back."""
    codes = ["13", "31", "23", "29", "30", "18", "17"]
    chosen = customer.with_columns(code=col("c_phone").left(2)).filter(col("code").is_in(codes))
    average = chosen.filter(col("c_acctbal") > 0).aggregate(average=dbsp.avg("c_acctbal"))
    rich = chosen.cross_join(average).filter(col("c_acctbal").cast(dbsp.FLOAT64) > col("average"))
    idle = rich.join(orders, on={"c_custkey": "o_custkey"}, how="anti")
    return idle.group_by("code").aggregate(numcust=dbsp.count(), totacctbal=dbsp.sum("c_acctbal"))


REVENUE_SQL = "sum(l_extendedprice * (1 - l_discount))"
QUERIES = {
    "q1": Query(
        q1,
        f"select l_returnflag, l_linestatus, sum(l_quantity), sum(l_extendedprice), {REVENUE_SQL},"
        " sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)), avg(l_quantity), avg(l_extendedprice),"
        " avg(l_discount), count(*) from lineitem where l_shipdate <= date '1998-09-02' group by all",
    ),
    "q2": Query(
        q2,
        "with offers as (select * from partsupp join supplier on ps_suppkey = s_suppkey join nation on s_nationkey ="
        " n_nationkey join region on n_regionkey = r_regionkey where r_name = 'EUROPE')"
        " select s_acctbal, s_name, n_name, p_partkey, p_mfgr, s_address, s_phone, s_comment from part p"
        " join offers on p_partkey = ps_partkey where p_size = 15 and p_type like '%BRASS' and ps_supplycost ="
        " (select min(ps_supplycost) from offers o where o.ps_partkey = p.p_partkey)"
        " order by s_acctbal desc, n_name, s_name, p_partkey limit 100",
    ),
    "q3": Query(
        q3,
        f"select l_orderkey, o_orderdate, o_shippriority, {REVENUE_SQL} as revenue from customer join orders on"
        " c_custkey = o_custkey join lineitem on l_orderkey = o_orderkey where c_mktsegment = 'BUILDING' and"
        " o_orderdate < date '1995-03-15' and l_shipdate > date '1995-03-15' group by all"
        " order by revenue desc, o_orderdate, l_orderkey limit 10",
    ),
    "q4": Query(
        q4,
        "select o_orderpriority, count(*) from orders where o_orderdate >= date '1993-07-01' and o_orderdate <"
        " date '1993-10-01' and exists (select * from lineitem where l_orderkey = o_orderkey and l_commitdate <"
        " l_receiptdate) group by all",
    ),
    "q5": Query(
        q5,
        f"select n_name, {REVENUE_SQL} from customer, orders, lineitem, supplier, nation, region where c_custkey ="
        " o_custkey and l_orderkey = o_orderkey and l_suppkey = s_suppkey and c_nationkey = s_nationkey and"
        " s_nationkey = n_nationkey and n_regionkey = r_regionkey and r_name = 'ASIA' and o_orderdate >="
        " date '1994-01-01' and o_orderdate < date '1995-01-01' group by all",
    ),
    "q6": Query(
        q6,
        "select sum(l_extendedprice * l_discount) from lineitem where l_shipdate >= date '1994-01-01' and l_shipdate"
        " < date '1995-01-01' and l_discount between 0.05 and 0.07 and l_quantity < 24",
    ),
    "q7": Query(
        q7,
        f"select n1.n_name as a, n2.n_name as b, year(l_shipdate) as y, {REVENUE_SQL} from supplier, lineitem,"
        " orders, customer, nation n1, nation n2 where s_suppkey = l_suppkey and o_orderkey = l_orderkey and"
        " c_custkey = o_custkey and s_nationkey = n1.n_nationkey and c_nationkey = n2.n_nationkey and"
        " n1.n_name in ('FRANCE', 'GERMANY') and n2.n_name in ('FRANCE', 'GERMANY') and n1.n_name <> n2.n_name and"
        " l_shipdate between date '1995-01-01' and date '1996-12-31' group by all",
    ),
    "q8": Query(
        q8,
        "select year(o_orderdate) as y, sum(case when n2.n_name = 'BRAZIL' then l_extendedprice * (1 - l_discount)"
        f" else 0 end)::double / {REVENUE_SQL}::double from part, supplier, lineitem, orders, customer, nation n1,"
        " nation n2, region where p_partkey = l_partkey and s_suppkey = l_suppkey and l_orderkey = o_orderkey and"
        " o_custkey = c_custkey and c_nationkey = n1.n_nationkey and n1.n_regionkey = r_regionkey and r_name ="
        " 'AMERICA' and s_nationkey = n2.n_nationkey and o_orderdate between date '1995-01-01' and"
        " date '1996-12-31' and p_type like 'ECONOMY%STEEL' group by y",
    ),
    "q9": Query(
        q9,
        "select n_name, year(o_orderdate) as y, sum(l_extendedprice * (1 - l_discount) - ps_supplycost * l_quantity)"
        " from part, supplier, lineitem, partsupp, orders, nation where s_suppkey = l_suppkey and ps_suppkey ="
        " l_suppkey and ps_partkey = l_partkey and p_partkey = l_partkey and o_orderkey = l_orderkey and"
        " s_nationkey = n_nationkey and p_name like '%green%' group by all",
    ),
    "q10": Query(
        q10,
        f"select c_custkey, c_name, c_acctbal, c_phone, n_name, c_address, c_comment, {REVENUE_SQL} as revenue from"
        " customer, orders, lineitem, nation where c_custkey = o_custkey and l_orderkey = o_orderkey and o_orderdate"
        " >= date '1993-10-01' and o_orderdate < date '1994-01-01' and l_returnflag = 'R' and c_nationkey ="
        " n_nationkey group by all order by revenue desc, c_custkey limit 20",
    ),
    "q11": Query(
        q11,
        "with stock as (select * from partsupp, supplier, nation where ps_suppkey = s_suppkey and s_nationkey ="
        " n_nationkey and n_name = 'GERMANY') select ps_partkey, sum(ps_supplycost * ps_availqty) as value from stock"
        " group by ps_partkey having value > (select sum(ps_supplycost * ps_availqty) * 0.005 from stock)",
    ),
    "q12": Query(
        q12,
        "select l_shipmode, count(*) filter (o_orderpriority in ('1-URGENT', '2-HIGH')), count(*) filter"
        " (o_orderpriority not in ('1-URGENT', '2-HIGH')) from orders, lineitem where o_orderkey = l_orderkey and"
        " l_shipmode in ('MAIL', 'SHIP') and l_commitdate < l_receiptdate and l_shipdate < l_commitdate and"
        " l_receiptdate >= date '1994-01-01' and l_receiptdate < date '1995-01-01' group by all",
    ),
    "q13": Query(
        q13,
        "select c_count, count(*) from (select c_custkey, count(o_orderkey) as c_count from customer left join orders"
        " on c_custkey = o_custkey and o_comment not like '%special%requests%' group by c_custkey) group by c_count",
    ),
    "q14": Query(
        q14,
        "select 100.0 * sum(case when p_type like 'PROMO%' then l_extendedprice * (1 - l_discount) else 0 end)::double"
        f" / {REVENUE_SQL}::double from lineitem, part where l_partkey = p_partkey and l_shipdate >="
        " date '1995-09-01' and l_shipdate < date '1995-10-01'",
    ),
    "q15": Query(
        q15,
        f"with revenue as (select l_suppkey, {REVENUE_SQL} as total from lineitem where l_shipdate >="
        " date '1996-01-01' and l_shipdate < date '1996-04-01' group by l_suppkey) select s_suppkey, s_name,"
        " s_address, s_phone, total from supplier, revenue where s_suppkey = l_suppkey and total ="
        " (select max(total) from revenue)",
    ),
    "q16": Query(
        q16,
        "select p_brand, p_type, p_size, count(distinct ps_suppkey) from partsupp, part where p_partkey = ps_partkey"
        " and p_brand <> 'Brand#45' and p_type not like 'MEDIUM POLISHED%' and p_size in (49, 14, 23, 45, 19, 3, 36,"
        " 9) and ps_suppkey not in (select s_suppkey from supplier where s_comment like '%Customer%Complaints%')"
        " group by all",
    ),
    "q17": Query(
        q17,
        "select sum(l_extendedprice)::double / 7.0 from lineitem l, part where p_partkey = l_partkey and p_brand ="
        " 'Brand#23' and p_container = 'MED BOX' and l_quantity::double < (select 0.2::double * avg(l_quantity) from"
        " lineitem i where i.l_partkey = p_partkey)",
    ),
    "q18": Query(
        q18,
        "select c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice, sum(l_quantity) from customer, orders,"
        " lineitem where o_orderkey in (select l_orderkey from lineitem group by l_orderkey having sum(l_quantity) >"
        " 250) and c_custkey = o_custkey and o_orderkey = l_orderkey group by all"
        " order by o_totalprice desc, o_orderdate, c_name, o_orderkey limit 100",
    ),
    "q19": Query(
        q19,
        f"select {REVENUE_SQL} from lineitem, part where p_partkey = l_partkey and l_shipmode in ('AIR', 'REG AIR')"
        " and l_shipinstruct = 'DELIVER IN PERSON' and ((p_brand = 'Brand#12' and p_container in ('SM CASE',"
        " 'SM BOX', 'SM PACK', 'SM PKG') and l_quantity between 1 and 11 and p_size between 1 and 25) or (p_brand ="
        " 'Brand#23' and p_container in ('MED BAG', 'MED BOX', 'MED PKG', 'MED PACK') and l_quantity between 10 and"
        " 20 and p_size between 1 and 40) or (p_brand = 'Brand#34' and p_container in ('LG CASE', 'LG BOX',"
        " 'LG PACK', 'LG PKG') and l_quantity between 20 and 30 and p_size between 1 and 50))",
    ),
    "q20": Query(
        q20,
        "select s_name, s_address from supplier, nation where s_suppkey in (select ps_suppkey from partsupp where"
        " ps_partkey in (select p_partkey from part where p_name like 'forest%') and ps_availqty > (select 0.5 *"
        " sum(l_quantity) from lineitem where l_partkey = ps_partkey and l_suppkey = ps_suppkey and l_shipdate >="
        " date '1994-01-01' and l_shipdate < date '1995-01-01')) and s_nationkey = n_nationkey and n_name = 'CANADA'",
    ),
    "q21": Query(
        q21,
        "select s_name, count(*) as numwait from supplier, lineitem l1, orders, nation where s_suppkey = l1.l_suppkey"
        " and o_orderkey = l1.l_orderkey and o_orderstatus = 'F' and l1.l_receiptdate > l1.l_commitdate and exists"
        " (select * from lineitem l2 where l2.l_orderkey = l1.l_orderkey and l2.l_suppkey <> l1.l_suppkey) and not"
        " exists (select * from lineitem l3 where l3.l_orderkey = l1.l_orderkey and l3.l_suppkey <> l1.l_suppkey and"
        " l3.l_receiptdate > l3.l_commitdate) and s_nationkey = n_nationkey and n_name = 'SAUDI ARABIA' group by"
        " s_name order by numwait desc, s_name limit 100",
    ),
    "q22": Query(
        q22,
        "with chosen as (select *, substring(c_phone from 1 for 2) as code from customer where substring(c_phone from"
        " 1 for 2) in ('13', '31', '23', '29', '30', '18', '17')) select code, count(*), sum(c_acctbal) from chosen"
        " where c_acctbal::double > (select avg(c_acctbal) from chosen where c_acctbal > 0) and not exists (select *"
        " from orders where o_custkey = c_custkey) group by code",
    ),
}
