"""The eight tables of TPC-H; those that the refresh streams change have their primary keys."""

from __future__ import annotations

import dbsp

MONEY = dbsp.decimal(15, 2)
REGION = {"r_regionkey": dbsp.INT64, "r_name": dbsp.STRING}
NATION = {"n_nationkey": dbsp.INT64, "n_name": dbsp.STRING, "n_regionkey": dbsp.INT64}
SUPPLIER = {
    "s_suppkey": dbsp.INT64,
    "s_name": dbsp.STRING,
    "s_address": dbsp.STRING,
    "s_nationkey": dbsp.INT64,
    "s_phone": dbsp.STRING,
    "s_acctbal": MONEY,
    "s_comment": dbsp.STRING,
}
CUSTOMER = {
    "c_custkey": dbsp.INT64,
    "c_name": dbsp.STRING,
    "c_address": dbsp.STRING,
    "c_nationkey": dbsp.INT64,
    "c_phone": dbsp.STRING,
    "c_acctbal": MONEY,
    "c_mktsegment": dbsp.STRING,
    "c_comment": dbsp.STRING,
}
PART = {
    "p_partkey": dbsp.INT64,
    "p_name": dbsp.STRING,
    "p_mfgr": dbsp.STRING,
    "p_brand": dbsp.STRING,
    "p_type": dbsp.STRING,
    "p_size": dbsp.INT64,
    "p_container": dbsp.STRING,
    "p_retailprice": MONEY,
}
PARTSUPP = {
    "ps_partkey": dbsp.INT64,
    "ps_suppkey": dbsp.INT64,
    "ps_availqty": dbsp.INT64,
    "ps_supplycost": MONEY,
}
ORDERS = {
    "o_orderkey": dbsp.INT64,
    "o_custkey": dbsp.INT64,
    "o_orderstatus": dbsp.STRING,
    "o_totalprice": MONEY,
    "o_orderdate": dbsp.DATE,
    "o_orderpriority": dbsp.STRING,
    "o_shippriority": dbsp.INT64,
    "o_comment": dbsp.STRING,
}
LINEITEM = {
    "l_orderkey": dbsp.INT64,
    "l_partkey": dbsp.INT64,
    "l_suppkey": dbsp.INT64,
    "l_linenumber": dbsp.INT64,
    "l_quantity": MONEY,
    "l_extendedprice": MONEY,
    "l_discount": MONEY,
    "l_tax": MONEY,
    "l_returnflag": dbsp.STRING,
    "l_linestatus": dbsp.STRING,
    "l_shipdate": dbsp.DATE,
    "l_commitdate": dbsp.DATE,
    "l_receiptdate": dbsp.DATE,
    "l_shipinstruct": dbsp.STRING,
    "l_shipmode": dbsp.STRING,
}
COLUMNS = {
    "region": REGION,
    "nation": NATION,
    "supplier": SUPPLIER,
    "customer": CUSTOMER,
    "part": PART,
    "partsupp": PARTSUPP,
    "orders": ORDERS,
    "lineitem": LINEITEM,
}

region = dbsp.table("region", REGION, primary_key="r_regionkey")
nation = dbsp.table("nation", NATION, primary_key="n_nationkey")
supplier = dbsp.table("supplier", SUPPLIER, primary_key="s_suppkey")
customer = dbsp.table("customer", CUSTOMER, primary_key="c_custkey")
part = dbsp.table("part", PART, primary_key="p_partkey")
partsupp = dbsp.table("partsupp", PARTSUPP, primary_key=["ps_partkey", "ps_suppkey"])
orders = dbsp.table("orders", ORDERS, primary_key="o_orderkey")
lineitem = dbsp.table("lineitem", LINEITEM, primary_key=["l_orderkey", "l_linenumber"])
