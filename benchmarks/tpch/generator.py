"""TPC-H's tables at any scale factor, whole columns at a time, and the two refresh streams: new orders in, old orders out.

Our own generator: cardinalities, keys, value ranges and the texts that queries look for are those of the specification; the
filling of comments is not. Equal seeds give equal rows.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.tpch.tables import COLUMNS, MONEY

Tables = dict[str, pa.Table]
REGIONS = ["AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST"]
NATIONS = [
    ("ALGERIA", 0), ("ARGENTINA", 1), ("BRAZIL", 1), ("CANADA", 1), ("EGYPT", 4), ("ETHIOPIA", 0), ("FRANCE", 3),
    ("GERMANY", 3), ("INDIA", 2), ("INDONESIA", 2), ("IRAN", 4), ("IRAQ", 4), ("JAPAN", 2), ("JORDAN", 4), ("KENYA", 0),
    ("MOROCCO", 0), ("MOZAMBIQUE", 0), ("PERU", 1), ("CHINA", 2), ("ROMANIA", 3), ("SAUDI ARABIA", 4), ("VIETNAM", 2),
    ("RUSSIA", 3), ("UNITED KINGDOM", 3), ("UNITED STATES", 1),
]  # fmt: skip
SEGMENTS = ["AUTOMOBILE", "BUILDING", "FURNITURE", "MACHINERY", "HOUSEHOLD"]
PRIORITIES = ["1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW"]
INSTRUCTIONS = ["DELIVER IN PERSON", "COLLECT COD", "NONE", "TAKE BACK RETURN"]
MODES = ["REG AIR", "AIR", "RAIL", "SHIP", "TRUCK", "MAIL", "FOB"]
COLORS = ["almond", "azure", "blush", "chocolate", "forest", "green", "ivory", "lemon", "navy", "red", "salmon", "tan"]
TYPES = [
    f"{a} {b} {c}"
    for a in ("STANDARD", "SMALL", "MEDIUM", "LARGE", "ECONOMY", "PROMO")
    for b in ("ANODIZED", "BURNISHED", "PLATED", "POLISHED", "BRUSHED")
    for c in ("TIN", "NICKEL", "BRASS", "STEEL", "COPPER")
]
CONTAINERS = [
    f"{a} {b}"
    for a in ("SM", "LG", "MED", "JUMBO", "WRAP")
    for b in ("CASE", "BOX", "BAG", "JAR", "PKG", "PACK", "CAN", "DRUM")
]
WORDS = [
    "carefully",
    "special",
    "deposits",
    "requests",
    "quickly",
    "ironic",
    "packages",
    "Customer",
    "Complaints",
    "final",
]
FIRST_DAY, LAST_DAY, TODAY = dt.date(1992, 1, 1), dt.date(1998, 8, 2), dt.date(1995, 6, 17)
SUPPLIERS_PER_PART, LINES_MAX = 4, 7


@dataclass(frozen=True)
class Generator:
    """The rows of one scale factor (1.0: 1.5 M orders, about 6 M line items) and seed."""

    scale: float = 0.01
    seed: int = 42

    def count(self, of_one: int) -> int:
        """Rows of a table that has `of_one` at scale 1."""
        return max(int(of_one * self.scale), 10)

    def fixed(self) -> Tables:
        """The tables that the refresh streams leave alone."""
        rng = np.random.default_rng([self.seed, 0])
        return {
            "region": _table("region", r_regionkey=np.arange(5), r_name=REGIONS),
            "nation": _table(
                "nation",
                n_nationkey=np.arange(25),
                n_name=[name for name, _ in NATIONS],
                n_regionkey=[region for _, region in NATIONS],
            ),
            "supplier": self._suppliers(rng),
            "customer": self._customers(rng),
            "part": self._parts(rng),
            "partsupp": self._part_suppliers(rng),
        }

    def orders(self, block: int) -> Tables:
        """Orders and their line items number `block`: block 0 is the initial load, the others are refreshes of 0.1 %."""
        rng = np.random.default_rng([self.seed, 1 + block])
        whole = self.count(1_500_000)
        n = whole if block == 0 else max(whole // 1000, 5)
        first = 1 if block == 0 else 1 + whole + (block - 1) * max(whole // 1000, 5)
        keys = np.arange(first, first + n)
        days = rng.integers(0, (LAST_DAY - FIRST_DAY).days - 151, n)
        lines = rng.integers(1, LINES_MAX + 1, n)
        items = self._line_items(rng, np.repeat(keys, lines), np.repeat(days, lines), lines)
        status = np.array(["F", "O", "P"])[rng.integers(0, 3, n)]
        customers = self.count(150_000)
        return {
            "orders": _table(
                "orders",
                o_orderkey=keys,
                o_custkey=rng.integers(1, customers + 1, n) // 3 * 3 + 1,  # a third of the customers never order
                o_orderstatus=status,
                o_totalprice=_money(rng, n, 1_000, 500_000),
                o_orderdate=_days(days),
                o_orderpriority=_pick(rng, PRIORITIES, n),
                o_shippriority=np.zeros(n, np.int64),
                o_comment=_comments(rng, n),
            ),
            "lineitem": items,
        }

    def refreshes(self, pairs: int) -> Iterator[tuple[Tables, Tables]]:
        """Pairs of (new orders, keys of the oldest orders to delete with their line items)."""
        whole = self.orders(0)
        each = max(self.count(1_500_000) // 1000, 5)
        for pair in range(pairs):
            old = pa.array(np.arange(1 + pair * each, 1 + (pair + 1) * each))
            gone = {
                "orders": pa.table({"o_orderkey": old}),
                "lineitem": whole["lineitem"]
                .filter(pc.is_in(whole["lineitem"]["l_orderkey"], value_set=old))
                .select(["l_orderkey", "l_linenumber"]),
            }
            yield self.orders(pair + 1), gone

    def _suppliers(self, rng: np.random.Generator) -> pa.Table:
        n = self.count(10_000)
        nations = rng.integers(0, 25, n)
        return _table(
            "supplier",
            s_suppkey=np.arange(1, n + 1),
            s_name=[f"Supplier#{number:09d}" for number in range(1, n + 1)],
            s_address=_comments(rng, n),
            s_nationkey=nations,
            s_phone=_phones(rng, nations),
            s_acctbal=_money(rng, n, -999, 9_999),
            s_comment=_comments(rng, n),
        )

    def _customers(self, rng: np.random.Generator) -> pa.Table:
        n = self.count(150_000)
        nations = rng.integers(0, 25, n)
        return _table(
            "customer",
            c_custkey=np.arange(1, n + 1),
            c_name=[f"Customer#{number:09d}" for number in range(1, n + 1)],
            c_address=_comments(rng, n),
            c_nationkey=nations,
            c_phone=_phones(rng, nations),
            c_acctbal=_money(rng, n, -999, 9_999),
            c_mktsegment=_pick(rng, SEGMENTS, n),
            c_comment=_comments(rng, n),
        )

    def _parts(self, rng: np.random.Generator) -> pa.Table:
        n = self.count(200_000)
        makers, brands = rng.integers(1, 6, n), rng.integers(1, 6, n)
        names = zip(*(_pick(rng, COLORS, n).to_pylist() for _ in range(3)), strict=True)
        return _table(
            "part",
            p_partkey=np.arange(1, n + 1),
            p_name=[" ".join(words) for words in names],
            p_mfgr=[f"Manufacturer#{maker}" for maker in makers.tolist()],
            p_brand=[f"Brand#{maker}{brand}" for maker, brand in zip(makers.tolist(), brands.tolist(), strict=True)],
            p_type=_pick(rng, TYPES, n),
            p_size=rng.integers(1, 51, n),
            p_container=_pick(rng, CONTAINERS, n),
            p_retailprice=_money(rng, n, 900, 2_000),
        )

    def _part_suppliers(self, rng: np.random.Generator) -> pa.Table:
        parts = np.repeat(np.arange(1, self.count(200_000) + 1), SUPPLIERS_PER_PART)
        n = len(parts)
        return _table(
            "partsupp",
            ps_partkey=parts,
            ps_suppkey=self._supplier_of(parts, np.tile(np.arange(SUPPLIERS_PER_PART), n // SUPPLIERS_PER_PART)),
            ps_availqty=rng.integers(1, 10_000, n),
            ps_supplycost=_money(rng, n, 1, 1_000),
        )

    def _supplier_of(self, parts: Any, which: Any) -> Any:
        """One of the four suppliers of a part; all four differ."""
        suppliers = self.count(10_000)
        return (
            parts + which * (suppliers // SUPPLIERS_PER_PART) + parts // suppliers * (parts % 3 == 0)
        ) % suppliers + 1

    def _line_items(self, rng: np.random.Generator, keys: Any, days: Any, lines: Any) -> pa.Table:
        n = len(keys)
        parts = rng.integers(1, self.count(200_000) + 1, n)
        shipped = days + rng.integers(1, 122, n)
        received = shipped + rng.integers(1, 31, n)
        today = (TODAY - FIRST_DAY).days
        returned = np.array(["R", "A"])[rng.integers(0, 2, n)]
        quantity = rng.integers(1, 51, n)
        return _table(
            "lineitem",
            l_orderkey=keys,
            l_partkey=parts,
            l_suppkey=self._supplier_of(parts, rng.integers(0, SUPPLIERS_PER_PART, n)),
            l_linenumber=np.arange(n) - np.repeat(np.cumsum(lines) - lines, lines) + 1,
            l_quantity=_cents(quantity * 100),
            l_extendedprice=_cents(quantity * rng.integers(90_000, 200_000, n)),
            l_discount=_cents(rng.integers(0, 11, n)),
            l_tax=_cents(rng.integers(0, 9, n)),
            l_returnflag=np.where(received <= today, returned, "N"),
            l_linestatus=np.where(shipped > today, "O", "F"),
            l_shipdate=_days(shipped),
            l_commitdate=_days(days + rng.integers(30, 91, n)),
            l_receiptdate=_days(received),
            l_shipinstruct=_pick(rng, INSTRUCTIONS, n),
            l_shipmode=_pick(rng, MODES, n),
        )


def _pick(rng: np.random.Generator, texts: list[str], n: int) -> pa.Array:
    return pa.array(texts).take(pa.array(rng.integers(0, len(texts), n)))


def _comments(rng: np.random.Generator, n: int) -> pa.Array:
    return pc.binary_join_element_wise(*(_pick(rng, WORDS, n) for _ in range(4)), " ")


def _phones(rng: np.random.Generator, nations: Any) -> list[str]:
    rest = rng.integers(0, 10_000_000, len(nations)).tolist()
    return [
        f"{10 + nation}-{number // 10_000:03d}-{number % 10_000:04d}"
        for nation, number in zip(nations, rest, strict=True)
    ]


def _money(rng: np.random.Generator, n: int, low: int, high: int) -> pa.Array:
    return _cents(rng.integers(low * 100, high * 100, n))


def _cents(values: Any) -> pa.Array:
    """Whole cents as decimals."""
    words = np.zeros((len(values), 2), np.int64)
    words[:, 0], words[:, 1] = values, np.asarray(values) >> 63
    return pa.Array.from_buffers(MONEY, len(values), [None, pa.py_buffer(words)])


def _days(values: Any) -> pa.Array:
    start = (FIRST_DAY - dt.date(1970, 1, 1)).days
    return pa.array((np.asarray(values) + start).astype(np.int32)).cast(pa.date32())


def _table(name: str, /, **columns: Any) -> pa.Table:
    types = COLUMNS[name]
    arrays = [
        columns[column] if isinstance(columns[column], pa.Array) else pa.array(columns[column], type_)
        for column, type_ in types.items()
    ]
    return pa.table(arrays, schema=pa.schema(list(types.items())))
