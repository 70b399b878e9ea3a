"""What is said to tell rows apart does, whatever the tables hold; and what should be known is."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from random import Random
from typing import Any

import pytest

import dbsp
from dbsp import col
from dbsp.algebra.key_by import KeyBy, keyed_views
from dbsp.errors import CircuitError

CUSTOMERS = dbsp.table("customers", {"id": dbsp.INT64, "city": dbsp.STRING}, primary_key="id")
ORDERS = dbsp.table("orders", {"id": dbsp.INT64, "customer": dbsp.INT64, "paid": dbsp.INT64}, primary_key="id")
EVENTS = dbsp.table("events", {"kind": dbsp.INT64, "at": dbsp.INT64})
TABLES = {"customers": CUSTOMERS, "orders": ORDERS, "events": EVENTS}
KNOWN = [
    ("select * from orders", "id"),
    ("select paid, id as number from orders where paid > 3", "number"),
    ("select o.id as oid, city from orders o join customers c on o.customer = c.id", "oid"),
    ("select o.id as oid, city from orders o left join customers c on o.customer = c.id", "oid"),
    ("select kind, count(*) as n from events group by kind", "kind"),
    ("select count(*) as n from events", "n"),
    ("select distinct kind from events", "kind"),
    ("select customer, id from orders qualify row_number() over (partition by customer order by paid) = 1", "customer"),
    (
        "select customer, id, row_number() over (partition by customer order by paid) as place from orders"
        " qualify place <= 3",
        "customer, place",
    ),
    ("select kind, row_number() over (partition by kind order by at) as place from events", "place, kind"),
    (
        "select city, sum(paid) as s from orders o join customers c on o.customer = c.id group by city having s > 3",
        "city",
    ),
    ("select a.id as x, b.id as y from orders a join orders b on a.customer = b.customer", "x, y"),
    (
        "select c.id, city, n from customers c join"
        " (select customer, count(*) as n from orders group by customer) on customer = c.id",
        "id",
    ),
    ("select id from orders where customer in (select id from customers)", "id"),
]
NOT_KNOWN = [
    ("select id + 1 as id from orders", "id"),
    ("select o.id as oid, c.id as cid from orders o join customers c on o.customer = c.id", "cid"),
    ("select o.id as oid, c.id as cid from orders o full join customers c on o.customer = c.id", "oid"),
    ("select kind from events", "kind"),
    (
        "select customer, id from orders qualify row_number() over (partition by customer order by paid) <= 2",
        "customer",
    ),
    ("select kind, rank() over (partition by kind order by at) as place from events", "kind, place"),
    ("select kind, row_number() over (partition by kind order by at) as place from events", "place"),
    ("select customer, id from orders qualify rank() over (partition by customer order by paid) = 1", "customer"),
    ("select a.id as x, b.id as y from orders a join orders b on a.customer = b.customer", "x"),
    ("select id from orders union all select id from customers", "id"),
]


def keys_of(text: str) -> tuple[str, ...]:
    return tuple(text.split(", "))


@pytest.mark.parametrize(("query", "keys"), KNOWN)
def test_what_is_known(query: str, keys: str) -> None:
    circuit = dbsp.circuit("t", {"v": dbsp.sql(query, **TABLES)})
    made = keyed_views(circuit, {"v": keys_of(keys)})
    assert isinstance(made.views[0][1], KeyBy)
    assert made.fingerprint != circuit.fingerprint


@pytest.mark.parametrize(("query", "keys"), NOT_KNOWN)
def test_what_is_not_known_is_refused(query: str, keys: str) -> None:
    circuit = dbsp.circuit("t", {"v": dbsp.sql(query, **TABLES)})
    with pytest.raises(CircuitError, match="two rows of the view may have one key: view=v"):
        keyed_views(circuit, {"v": keys_of(keys)})


def stream(chance: Random, depth: int) -> dbsp.Stream:
    """A stream over the tables."""
    if depth == 0:
        return chance.choice(list(TABLES.values()))
    return chance.choice(STEPS)(chance, stream(chance, depth - 1), depth)


def some(chance: Random, found: dbsp.Stream, most: int) -> list[str]:
    names = list(found.columns)
    return chance.sample(names, chance.randrange(min(most, len(names)) + 1))


def filtered(chance: Random, found: dbsp.Stream, _depth: int) -> dbsp.Stream:
    return found.filter(col(chance.choice(list(found.columns))).is_not_null())


def selected(chance: Random, found: dbsp.Stream, depth: int) -> dbsp.Stream:
    kept = some(chance, found, 3) or list(found.columns)
    return found.select(**{f"{name}_{depth}": col(name) for name in kept})


def grouped(chance: Random, found: dbsp.Stream, depth: int) -> dbsp.Stream:
    return found.group_by(*some(chance, found, 2)).aggregate(**{f"count_{depth}": dbsp.count()})


def first(chance: Random, found: dbsp.Stream, depth: int) -> dbsp.Stream:
    return found.top_k(
        chance.randrange(1, 3),
        by=chance.choice(list(found.columns)),
        partition_by=some(chance, found, 1),
        rank=chance.choice([None, f"place_{depth}"]),
    )


def different(_chance: Random, found: dbsp.Stream, _depth: int) -> dbsp.Stream:
    return found.distinct()


def numbered(chance: Random, found: dbsp.Stream, depth: int) -> dbsp.Stream:
    one, other = (chance.choice(list(found.columns)) for _ in range(2))
    windowed = found.window(partition_by=one, order_by=other).with_columns(**{f"number_{depth}": dbsp.row_number()})
    return windowed.filter(col(f"number_{depth}") == 1) if chance.random() < 0.5 else windowed


def joined(chance: Random, found: dbsp.Stream, depth: int) -> dbsp.Stream:
    right = stream(chance, depth - 1)
    right = right.select(**{f"r{depth}_{name}": col(name) for name in right.columns})
    pairs = [(a, b) for a in found.columns for b in right.columns if found.schema[a].type == right.schema[b].type]
    if not pairs:
        return found
    left_on, right_on = chance.choice(pairs)
    return found.join(
        right, left_on=left_on, right_on=right_on, how=chance.choice(["inner", "inner", "left", "semi", "anti", "full"])
    )


STEPS = [filtered, selected, grouped, first, different, numbered, joined, joined, joined]


def fill(chance: Random, run: Any, read: set[str]) -> None:
    for name in sorted(read):
        rows = []
        for _ in range(chance.randrange(6)):
            number, small = chance.randrange(5), chance.choice([None, 0, 1, 2])
            rows.append({
                "customers": {"id": number, "city": chance.choice(["a", "b", None])},
                "orders": {"id": number, "customer": small, "paid": chance.randrange(3)},
                "events": {"kind": small, "at": chance.randrange(2)},
            }[name])  # fmt: skip
        run.push(name, rows)


@pytest.mark.parametrize("seed", range(120))
def test_what_tells_rows_apart_does(seed: int) -> None:
    chance = Random(seed)
    found = stream(chance, chance.randrange(1, 4))
    circuit = dbsp.circuit("t", {"v": found})
    names = list(found.columns)
    claimed = [keys for size in (0, 1, 2) for keys in combinations(names, size) if found.node.unique(frozenset(keys))]
    with dbsp.open(circuit, workers=2) as run:
        for _ in range(3):
            fill(chance, run, {table.name for table in circuit.tables})
            run.step()
            rows = run.view("v").to_pylist()
            for keys in claimed:
                counted = Counter(tuple(row[key] for key in keys) for row in rows)
                assert not counted or max(counted.values()) == 1, (str(found.node), keys)


def test_the_streams_claim_something() -> None:
    """Else the law above would say nothing."""
    claims = 0
    for seed in range(120):
        chance = Random(seed)
        found = stream(chance, chance.randrange(1, 4))
        claims += any(found.node.unique(frozenset([name])) for name in found.columns)
    assert claims > 40


@pytest.mark.parametrize("workers", [1, 3])
def test_a_key_changes_with_one_worker_in_a_step(workers: int) -> None:
    """An order goes from a customer to another, whose rows are with other workers: its rows are written by one."""
    joined = ORDERS.join(CUSTOMERS.select(customer=col("id"), city=col("city")), on="customer")
    circuit = keyed_views(dbsp.circuit("t", {"v": joined}), {"v": ("id",)})
    with dbsp.open(circuit, workers=workers) as run:
        run.push("customers", [{"id": number, "city": str(number)} for number in range(20)])
        run.push("orders", [{"id": number, "customer": number % 20, "paid": 1} for number in range(50)])
        run.step()
        run.push("orders", [{"id": number, "customer": (number + 7) % 20, "paid": 1} for number in range(50)])
        run.step()
        for output in run._resources.outputs.values():
            weights = Counter(row[0] for row, _ in output.parts[1]["v"].to_rows())
            assert set(weights.values()) <= {2}
        assert len(run.view("v").to_pylist()) == 50
