"""The exchange: every row has one owner, parcels come back from their bytes, wrong ones are refused (fault 29)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dbsp
from dbsp.errors import DataError
from dbsp.layout import initial
from dbsp.logs import DeadLetter
from dbsp.plan.planner import plan as make_plan
from dbsp.runtime.profile import NodeProfile
from dbsp.steps.exchange import Address, Carried, Parcel, check_arrival, from_bytes, gather, split, to_bytes
from dbsp.steps.figures import StepPhase, TableRead
from dbsp.zset.batch import Batch, arrange

TABLE = dbsp.table("t", {"k": dbsp.STRING, "x": dbsp.INT64})
PLAN = make_plan(
    dbsp.circuit("c", {"n": TABLE.group_by("k").aggregate(n=dbsp.count()), "d": TABLE.select("x").distinct()})
)
HERE = Address(run="r", epoch=3, step=7, layout_version=2, depth=0, source=0, destination=1)
keys = st.lists(st.tuples(st.one_of(st.none(), st.text(max_size=3)), st.integers(-3, 3)), max_size=30)


def sent_batch(number: int, rows: list[tuple[Any, int]]) -> Batch:
    """Rows as the exchange's sender makes them: a key of the right type, and weights."""
    spec = PLAN.exchanges[number]
    column = spec.schema.columns[0]
    values = [((key if column.type == dbsp.STRING else len(key or "")), weight) for key, weight in rows]
    loose = Batch.from_rows(spec.schema, [((value,), weight) for value, weight in values])
    operator = PLAN.nodes[spec.sender].operator
    return arrange(loose, operator.form.arrangement()) if hasattr(operator, "form") else loose


def total(batches: list[Batch]) -> Counter[Any]:
    found: Counter[Any] = Counter()
    for batch in batches:
        for row, weight in batch.to_rows():
            found[row] += weight
    return Counter({row: weight for row, weight in found.items() if weight})


@given(keys, st.integers(1, 6), st.integers(0, 1))
def test_shares_add_up_and_lie_with_their_owner(rows: list[tuple[Any, int]], workers: int, number: int) -> None:
    layout, batch = initial(workers), sent_batch(number, rows)
    spec = PLAN.exchanges[number]
    shares = split(batch, spec, layout)
    assert len(shares) == workers
    assert total(shares) == total([batch])
    owners = {row: slot for slot, share in enumerate(shares) for row, _ in share.to_rows()}
    again = split(sent_batch(number, rows[::-1]), spec, layout)
    assert all(owners[row] == slot for slot, share in enumerate(again) for row, _ in share.to_rows())


@given(keys, keys)
def test_a_parcel_comes_back_from_its_bytes(left: list[tuple[Any, int]], right: list[tuple[Any, int]]) -> None:
    view = Batch.from_rows(PLAN.views[0].schema, [(("a", 2), 1)])
    carried = Carried(
        parts={PLAN.views[0].name: view},
        dead=(DeadLetter(step=7, origin="t", partition=0, offset=4, reason="bad", payload="{"),),
        rows_in=9,
        seconds=0.5,
        nodes=(NodeProfile(node=1, rows_in=2, rows_out=1, seconds=0.1),),
        reads=(TableRead(table="t", stored_bytes=12, arrived_s=None),),
        phases=(StepPhase(name="read", began_s=1.5, seconds=0.25),),
    )
    parcel = Parcel(address=HERE, batches={0: sent_batch(0, left), 1: sent_batch(1, right)}, carried=carried)
    back = from_bytes(to_bytes(parcel), PLAN)
    assert back.address == parcel.address
    assert {n: b.to_rows() for n, b in back.batches.items()} == {n: b.to_rows() for n, b in parcel.batches.items()}
    assert back.carried is not None
    assert back.carried.parts[PLAN.views[0].name].to_rows() == view.to_rows()
    assert (back.carried.dead, back.carried.nodes) == (carried.dead, carried.nodes)
    assert (back.carried.reads, back.carried.phases) == (carried.reads, carried.phases)
    assert to_bytes(back) == to_bytes(parcel)


@given(keys, keys)
def test_what_is_gathered_is_the_sum_whatever_the_order_of_arrival(left: Any, right: Any) -> None:
    parcels = [
        Parcel(address=replace(HERE, source=source), batches={0: sent_batch(0, rows)})
        for source, rows in enumerate((left, right))
    ]
    once, again = (gather(arrived, PLAN, 0)[0] for arrived in (parcels, parcels[::-1]))
    assert once.to_rows() == again.to_rows()
    assert total([once]) == total([sent_batch(0, left), sent_batch(0, right)])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("run", "other"),
        ("epoch", 2),
        ("step", 6),
        ("layout_version", 1),
        ("depth", 1),
        ("destination", 0),
        ("round", 1),
    ],
)
def test_a_parcel_of_another_place_is_refused_by_name(name: str, value: Any) -> None:
    parcels = [Parcel(address=replace(HERE, source=source), batches={}) for source in (0, 1)]
    wrong = replace(parcels[1], address=replace(parcels[1].address, **{name: value}))
    check_arrival(parcels, HERE, initial(2))
    with pytest.raises(DataError, match=f"source=1 {name}={value} expected_{name}="):
        check_arrival([parcels[0], wrong], HERE, initial(2))


@pytest.mark.parametrize("sources", [(0,), (0, 0), (0, 1, 1), ()])
def test_missing_and_doubled_parcels_are_refused(sources: tuple[int, ...]) -> None:
    parcels = [Parcel(address=replace(HERE, source=source), batches={}) for source in sources]
    with pytest.raises(DataError, match="parcels missing or doubled: step=7 depth=0 destination=1"):
        check_arrival(parcels, HERE, initial(2))


def test_every_damaged_byte_is_noticed() -> None:
    data = to_bytes(Parcel(address=HERE, batches={0: sent_batch(0, [("a", 1), ("b", 2)])}))
    whole = from_bytes(data, PLAN).batches[0].to_rows()
    for at in range(len(data)):
        damaged = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        try:
            rows = from_bytes(damaged, PLAN).batches[0].to_rows()
        except DataError:
            continue
        assert rows == whole, at  # padding between the parts
