"""Encode a distributor at rest as bytes, which a version contains during a migration, together with the worker's traces.

    header | layouts and small fields (JSON) | sets of keys

The header has 32 bytes, little-endian:

| field | type |
| --- | --- |
| magic | 8s |
| format | u16 |
| strategy: 1 icadd, 2 redistribute | u16 |
| head bytes | u32 |
| keys | u64 |
| crc32 of all that follows | u32 |
| zero | u32 |

The head is compact JSON with sorted names. The keys follow as u64, all sets end to end, in the order in which the head
has their lengths. Equal states give equal bytes; the tests have golden bytes.

Only a distributor at rest has bytes (no row stored, no key on hold), because versions are cut between two steps.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dbsp.distribute.distributor import Marks
from dbsp.distribute.icadd import IcaddDistributor, Phase
from dbsp.distribute.keys import Keys
from dbsp.distribute.redistribute import Giving, RedistributeDistributor
from dbsp.distribute.strategies import AnyDistributor
from dbsp.errors import DataError, InternalError
from dbsp.layout import Layout
from dbsp.stored import from_stored, stored_fields
from dbsp.stored.format_numbers import check_format

MAGIC = b"DBSPDIS\x00"
FORMAT = 1
_HEADER = struct.Struct("<8sHHIQII")
_ICADD, _REDISTRIBUTE = 1, 2


def encode(distributor: AnyDistributor) -> bytes:
    """Return the distributor as bytes.

    **Law** `decode(encode(d))` is a distributor that acts as `d` does; encoding it gives the same bytes.

    **Errors** `InternalError` if a row is stored or a key on hold.
    """
    if not distributor.at_rest:
        raise InternalError(f"a distributor that is not at rest has no bytes: worker={distributor.worker}")
    match distributor:
        case IcaddDistributor():
            number, head, sets = _ICADD, _icadd(distributor), [distributor.whitelist]
        case RedistributeDistributor(giving=giving):
            sets = [distributor.whitelist, *([giving.whitelist] if giving else [])]
            number, head = _REDISTRIBUTE, _redistribute(distributor)
    text = json.dumps({**head, "sets": [len(keys) for keys in sets]}, separators=(",", ":"), sort_keys=True).encode()
    body = text + b"".join(np.ascontiguousarray(keys, "<u8").tobytes() for keys in sets)
    front = _HEADER.pack(MAGIC, FORMAT, number, len(text), sum(map(len, sets)), zlib.crc32(body), 0)
    return front + body


def _icadd(distributor: IcaddDistributor) -> dict[str, Any]:
    return _common(distributor) | {
        "phase": int(distributor.phase), "known": distributor.known, "given": distributor.given,
        "finished_version": distributor.finished_version, "finished": sorted(distributor.finished),
    }  # fmt: skip


def _redistribute(distributor: RedistributeDistributor) -> dict[str, Any]:
    giving = distributor.giving
    return _common(distributor) | {
        "draining": sorted(distributor.draining), "given_version": distributor.given_version,
        "giving": None if giving is None else {
            "layout": _layout(giving.layout), "heard": sorted(giving.heard), "told": giving.told,
        },
    }  # fmt: skip


def _common(distributor: AnyDistributor) -> dict[str, Any]:
    taken = distributor.taken
    return {
        "worker": distributor.worker, "region": distributor.region, "pace": distributor.pace,
        "old": _layout(distributor.old), "new": None if distributor.new is None else _layout(distributor.new),
        "taken": [taken.version, sorted(taken.highest.items())],
    }  # fmt: skip


def _layout(layout: Layout) -> dict[str, Any]:
    """Return a layout's fields under their stored names, without the readers of input and the zones.

    A distributor does not need these two fields. Without them, a version of dbsp that does not know them can read the bytes.
    """
    return dict(stored_fields(replace(layout, readers=(), zones=())))


def decode(data: bytes) -> AnyDistributor:
    """Return the distributor that `encode` wrote as these bytes.

    **Errors** `DataError` for bytes that `encode` did not write.
    """
    if len(data) < _HEADER.size:
        raise DataError(f"the state of a distributor is cut short: bytes={len(data)}")
    magic, version, number, length, keys, checksum, _ = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise DataError(f"not the state of a distributor: magic={magic!r}")
    check_format("the state of a distributor", "", version, FORMAT)
    body = memoryview(data)[_HEADER.size :]
    if len(body) != length + 8 * keys or zlib.crc32(body) != checksum:
        raise DataError(f"the state of a distributor is damaged: bytes={len(data)} checksum={checksum}")
    head = json.loads(bytes(body[:length]))
    sets = _sets(np.frombuffer(body[length:], "<u8").astype(np.uint64), head["sets"])
    match number:
        case 1:
            return _to_icadd(head, sets)
        case 2:
            return _to_redistribute(head, sets)
        case _:
            raise DataError(f"the state of a distributor of an unknown strategy: number={number}")


def _sets(keys: Keys, lengths: Sequence[int]) -> list[Keys]:
    return np.split(keys, np.cumsum(lengths)[:-1])


def _to_icadd(head: Mapping[str, Any], sets: Sequence[Keys]) -> IcaddDistributor:
    return IcaddDistributor(
        **_to_common(head), phase=Phase(head["phase"]), known=head["known"], given=head["given"], whitelist=sets[0],
        finished_version=head["finished_version"], finished=frozenset(head["finished"]),
    )  # fmt: skip


def _to_redistribute(head: Mapping[str, Any], sets: Sequence[Keys]) -> RedistributeDistributor:
    found, giving = head["giving"], None
    if found is not None:
        giving = Giving(
            layout=_to_layout(found["layout"]), heard=frozenset(found["heard"]), told=found["told"], whitelist=sets[1]
        )
    return RedistributeDistributor(
        **_to_common(head), draining=frozenset(head["draining"]), whitelist=sets[0], giving=giving,
        given_version=head["given_version"],
    )  # fmt: skip


def _to_common(head: Mapping[str, Any]) -> dict[str, Any]:
    version, highest = head["taken"]
    return {
        "worker": head["worker"], "region": head["region"], "pace": head["pace"], "old": _to_layout(head["old"]),
        "new": None if head["new"] is None else _to_layout(head["new"]),
        "taken": Marks(version=version, highest={owner: key for owner, key in highest}),  # noqa: C416 - pairs are lists
    }  # fmt: skip


def _to_layout(found: Mapping[str, Any]) -> Layout:
    return from_stored(Layout, {name: _tuples(value) for name, value in found.items()})


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
