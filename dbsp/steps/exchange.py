"""Exchange rows between workers: parcels carry rows to the worker that owns their key.

All exchanges of one depth are sent together. Each source sends each destination one parcel, empty or not, so that a
receiver counts exactly W parcels, one from each of the W workers. A parcel has an address (run, epoch, step, round, layout
version, depth, source, destination) and checksums. The receiver refuses a parcel with another address, and names the
difference (fault 29). An early segment may make results for the end of the step: parts of the outputs, dead letters,
figures. The worker's parcel to itself carries these results.

Left out: the transport of parcels between processes (the runtimes do that), and layouts (`dbsp.layout`). Source:
docs/concepts/steps.md. No I/O here.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Protocol

import numpy as np

from dbsp.errors import DataError
from dbsp.layout import Layout
from dbsp.logs import DeadLetter
from dbsp.plan.nodes import ExchangeSpec
from dbsp.plan.plan import Plan
from dbsp.runtime.profile import NodeProfile
from dbsp.steps.error_policy import NodeFailure
from dbsp.steps.figures import StepPhase, TableRead
from dbsp.steps.timing import Signal
from dbsp.zset.batch import Batch, keys_of
from dbsp.zset.encoding import decode, encode
from dbsp.zset.kernels import partition_by
from dbsp.zset.merge import sum_of
from dbsp.zset.schema import Arrangement, OrderBy, Schema

MAGIC = b"DBSPXCH1"
Slot = tuple[str, int, int]
"""The key of a batch in the loop state: its kind, the number of its exchange or trace, and its index among several."""
_FRONT = struct.Struct("<8sII")
_ALIGN = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """The address of a parcel; `source` and `destination` are worker numbers."""

    run: str
    epoch: int
    step: int
    layout_version: int
    depth: int
    source: int
    destination: int
    round: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """Results that a worker keeps for the end of its own step: output parts, dead letters, figures.

    While a loop runs, `loop_state` is the worker's whole state of the loop: see `dbsp.runtime.loop_state`.
    """

    parts: Mapping[str, Batch] = field(default_factory=dict)
    dead: tuple[DeadLetter, ...] = ()
    rows_in: int = 0
    seconds: float = 0.0
    nodes: tuple[NodeProfile, ...] = ()
    loop_state: Mapping[Slot, Batch] = field(default_factory=dict)
    signals: tuple[Signal, ...] = ()
    reads: tuple[TableRead, ...] = ()
    phases: tuple[StepPhase, ...] = ()

    def plus(self, other: Carried) -> Carried:
        """Return the union of two segments' results; each view is made by one segment, so no view is in both."""
        return Carried(
            parts={**self.parts, **other.parts},
            dead=self.dead + other.dead,
            rows_in=self.rows_in + other.rows_in,
            seconds=self.seconds + other.seconds,
            nodes=self.nodes + other.nodes,
            loop_state={**self.loop_state, **other.loop_state},
            signals=self.signals + other.signals,
            reads=self.reads + other.reads,
            phases=self.phases + other.phases,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Parcel:
    """The rows that one worker sends another at one depth of one step: a batch per exchange number.

    `least` is the first iteration for which the source has work for a loop, -1 if it has no work. `failed` has the failures
    of the source, before the error policy is applied (`dbsp.steps.error_policy`); every destination gets all of them.
    """

    address: Address
    batches: Mapping[int, Batch]
    carried: Carried | None = None
    least: int = -1
    failed: tuple[NodeFailure, ...] = ()


class Owners(Protocol):
    """A map from keys to their owners: a layout, or the `KeyPlaces` of a step during which keys move between two layouts."""

    @property
    def workers(self) -> tuple[int, ...]:
        """Return all owners, in order."""
        ...

    def slot_of(self, key_hash: np.ndarray) -> np.ndarray:
        """Return the index in `workers` of the owner of each key hash."""
        ...


def split(batch: Batch, spec: ExchangeSpec, owners: Owners) -> list[Batch]:
    """Return the rows of a batch per owner, one batch per entry of `owners.workers`.

    Rows keep their order and arrangement.

    **Law** the sum of the result is the batch (invariant 2: each row has one owner).
    **Cost** one hash (none if the batch is arranged by the same key) and one counting sort over the owners; nothing
    with one worker.
    """
    count = len(owners.workers)
    if count == 1 or len(batch) == 0:
        return [batch, *([batch.slice(0, 0)] * (count - 1))]
    arranged = batch.arrangement is not None and batch.arrangement.key == spec.key
    key_hash = batch.key_hash if arranged and batch.key_hash is not None else keys_of(batch, spec.key)
    order, offsets = partition_by(owners.slot_of(key_hash), count)
    dealt = batch.take(order, words=arranged)
    if arranged:  # `partition_by` is stable, so the rows of each owner stay sorted
        dealt = dealt.but(arrangement=batch.arrangement)
    return [dealt.slice(int(offsets[slot]), int(offsets[slot + 1])) for slot in range(count)]


def least_round(leasts: Iterable[int]) -> int | None:
    """Return the first iteration for which some worker has work, None if no worker has work."""
    return min((least for least in leasts if least >= 0), default=None)


def gather(parcels: Sequence[Parcel], plan: Plan, depth: int) -> dict[int, Batch]:
    """Return the arrived rows of each exchange of a depth as one batch, ordered by source.

    The order by source keeps results independent of timing. Arranged batches are merged, not sorted again.
    """
    ordered = sorted(parcels, key=lambda parcel: parcel.address.source)
    return {spec.id: sum_of([p.batches[spec.id] for p in ordered if spec.id in p.batches], spec.schema, spec.weights)
            for spec in plan.exchanges if spec.depth == depth}  # fmt: skip


def check_arrival(parcels: Sequence[Parcel], expected: Address, layout: Layout) -> None:
    """Raise `DataError` unless there is exactly one parcel from each worker, all with the expected address."""
    for parcel in parcels:
        if parcel.address != replace(expected, source=parcel.address.source):
            raise _misplaced(parcel.address, expected)
    sources = sorted(parcel.address.source for parcel in parcels)
    if sources != sorted(layout.workers):
        raise DataError(
            f"parcels missing or doubled: step={expected.step} depth={expected.depth} destination={expected.destination}"
            f" sources={sources} workers={list(layout.workers)}"
        )


def _misplaced(found: Address, expected: Address) -> DataError:
    got, want = _flat(found), _flat(expected) | {"source": found.source}
    wrong = [f"{name}={got[name]} expected_{name}={want[name]}" for name in got if got[name] != want[name]]
    return DataError(f"a parcel of another place was refused: source={found.source} {' '.join(wrong)}")


def to_bytes(parcel: Parcel) -> bytes:
    """Return a parcel as one block of bytes: front (magic, checksum, length), index (JSON), sections aligned to 64 bytes."""
    return b"".join(sections_of(parcel))


def sections_of(parcel: Parcel) -> list[bytes | bytearray]:
    """Return the bytes of `to_bytes` in pieces that are not yet joined."""
    sections: list[bytes | bytearray] = []
    index: dict[str, object] = {"least": parcel.least, "address": _flat(parcel.address), "batches": [], "carried": None}
    index["failed"] = [_flat(row) for row in parcel.failed]
    index["batches"] = [[number, *_add(sections, batch)] for number, batch in sorted(parcel.batches.items())]
    if parcel.carried is not None:
        carried = parcel.carried
        index["carried"] = {
            "parts": [[name, *_add(sections, batch)] for name, batch in sorted(carried.parts.items())],
            "dead": [_flat(letter) for letter in carried.dead],
            "rows_in": carried.rows_in,
            "seconds": carried.seconds,
            "nodes": [_flat(node) for node in carried.nodes],
            "signals": [_flat(signal) for signal in carried.signals],
            "reads": [_flat(read) for read in carried.reads],
            "phases": [_flat(phase) for phase in carried.phases],
            "parked": [[*slot, *_add(sections, batch)] for slot, batch in sorted(carried.loop_state.items())],
        }
    head = json.dumps(index, separators=(",", ":")).encode()
    front = _FRONT.pack(MAGIC, zlib.crc32(head), len(head))
    return [front, head, _padding(len(front) + len(head)), *sections]


def from_bytes(data: bytes | memoryview, plan: Plan) -> Parcel:
    """Return the parcel in these bytes; its batches read the bytes in place. `DataError` if a checksum differs."""
    index, length = _index(data)
    start = _FRONT.size + length + len(_padding(_FRONT.size + length))
    body = memoryview(data)[start:]
    exchanges = {spec.id: spec.schema for spec in plan.all_exchanges()}
    batches = {number: _read(body, place, exchanges[number]) for number, *place in index["batches"]}
    carried = _carried(index["carried"], body, plan, exchanges)
    return Parcel(
        address=Address(**index["address"]), batches=batches, carried=carried, least=index["least"],
        failed=tuple(NodeFailure(**row) for row in index["failed"]),
    )  # fmt: skip


def least_of(data: bytes | memoryview) -> int:
    """Return the first iteration for which the source of a parcel has work (-1: none), without reading its batches."""
    return int(_index(data)[0]["least"])


def _index(data: bytes | memoryview) -> tuple[dict[str, Any], int]:
    """Return a parcel's index and the index's length, after checking size, magic and checksum."""
    if len(data) < _FRONT.size:
        raise DataError(f"an exchange parcel is cut short: bytes={len(data)}")
    magic, checksum, length = _FRONT.unpack_from(data)
    head = bytes(data[_FRONT.size : _FRONT.size + length])
    if magic != MAGIC or zlib.crc32(head) != checksum:
        raise DataError(f"an exchange parcel is damaged: bytes={len(data)}")
    return json.loads(head), length


def _carried(
    index: dict[str, Any] | None, body: memoryview, plan: Plan, exchanges: Mapping[int, Schema]
) -> Carried | None:
    if index is None:
        return None
    schemas = {view.name: view.schema for view in plan.views}
    traces = {trace.id: trace.arrangement.schema for trace in plan.all_traces()} if index["parked"] else {}
    return Carried(
        parts={name: _read(body, place, schemas[name]) for name, *place in index["parts"]},
        dead=tuple(DeadLetter(**letter) for letter in index["dead"]),
        rows_in=index["rows_in"],
        seconds=index["seconds"],
        signals=tuple(Signal(**signal) for signal in index["signals"]),
        reads=tuple(TableRead(**read) for read in index["reads"]),
        phases=tuple(StepPhase(**phase) for phase in index["phases"]),
        nodes=tuple(NodeProfile(**node) for node in index["nodes"]),
        loop_state={
            (kind, number, at): _read(body, place, (traces if kind == "trace" else exchanges)[number])
            for kind, number, at, *place in index["parked"]
        },
    )


def _add(sections: list[bytes | bytearray], batch: Batch) -> tuple[int, int, dict[str, Any] | None]:
    """Append an encoded batch to the sections; return its first byte, its size and its arrangement (None if loose)."""
    first = sum(map(len, sections))
    data = encode(batch)
    sections.extend((data, _padding(len(data))))
    form = batch.arrangement
    if form is None:
        return first, len(data), None
    return first, len(data), {"key": form.key, "order": [_flat(by) for by in form.order], "weights": form.weights}


def _read(body: memoryview, place: Sequence[Any], schema: Schema) -> Batch:
    first, size, form = place
    if form is None:
        return decode(body[first : first + size], schema)
    order = tuple(OrderBy(**by) for by in form["order"])
    arrangement = Arrangement(schema=schema, key=tuple(form["key"]), order=order, weights=form["weights"])
    return decode(body[first : first + size], schema, arrangement)


def _padding(size: int) -> bytes:
    return b"\0" * (-size % _ALIGN)


def _flat(value: Any) -> dict[str, Any]:
    """Return the fields of a flat dataclass; `dataclasses.asdict` would copy each field's value deeply."""
    return {each.name: getattr(value, each.name) for each in fields(value)}
