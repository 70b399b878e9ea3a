"""The stored forms of version records, step records and keys. All integers in keys are big-endian, so that they sort.

Format 2 of a record: magic, format, length of a JSON head, the head, the trace states, the CRC-32 of all preceding bytes.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dbsp.errors import CapacityError, DataError
from dbsp.lmdb_environments import ENGINE_VERSION
from dbsp.store import CheckpointId, CommitReport
from dbsp.stored import from_stored, to_stored
from dbsp.stored.format_numbers import check_format
from dbsp.trace.manifest import SpineState, decode_state, encode_state

States = Mapping[int, SpineState]

KEY_BYTES_MAX = 511
_HEAD = struct.Struct("<4sHHI")
_MAGIC = b"DBVR"
FORMAT = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The traces as of a step, and the checkpoint and step to which they belong.

    - `report` is set once a version is committed.
    - `dropped` contains chunks that the step before referred to and this step does not.
    - `sliced` is True if the version was made of slices and no step has run since. Its first step merges nothing.
    """

    checkpoint: CheckpointId
    step: int
    traces: States
    report: CommitReport | None = None
    dropped: tuple[int, ...] = ()
    sliced: bool = False


def encode_record(record: Record) -> bytes:
    """Encode a record as bytes."""
    states = {number: encode_state(state) for number, state in sorted(record.traces.items())}
    head = json.dumps(
        {
            "checkpoint": to_stored(record.checkpoint),
            "step": record.step,
            "traces": [[number, len(data)] for number, data in states.items()],
            "report": to_stored(record.report) if record.report else None,
            "dropped": record.dropped,
            "sliced": record.sliced,
            "lmdb": ENGINE_VERSION,
        },
        sort_keys=True,
    ).encode()
    body = b"".join([_HEAD.pack(_MAGIC, FORMAT, 0, len(head)), head, *states.values()])
    return body + struct.pack("<I", zlib.crc32(body))


def decode_record(data: bytes, where: str) -> Record:
    """Decode a record that `encode_record` wrote; raise a `DataError` that names the place `where`."""
    body = data[:-4]
    magic, version, _, length = _HEAD.unpack_from(body) if len(body) >= _HEAD.size else (b"", 0, 0, 0)
    if magic == _MAGIC:
        check_format("a record", where, version, FORMAT)
    if magic != _MAGIC or data[-4:] != struct.pack("<I", zlib.crc32(body)):
        raise DataError(f"a record fails its checksum: {where} bytes={len(data)}", "restore it from a backup")
    head: dict[str, Any] = json.loads(body[_HEAD.size : _HEAD.size + length])
    place, traces = _HEAD.size + length, {}
    for number, size in head["traces"]:
        traces[int(number)] = decode_state(body[place : place + size], where)
        place += size
    report = from_stored(CommitReport, head["report"]) if head["report"] else None
    return Record(
        checkpoint=from_stored(CheckpointId, head["checkpoint"]),
        step=head["step"],
        traces=traces,
        report=report,
        dropped=tuple(head["dropped"]),
        sliced=head["sliced"],
    )


def number_key(number: int) -> bytes:
    """Encode a number as a key that sorts by the number."""
    return struct.pack(">Q", number)


def number_of(key: bytes | memoryview) -> int:
    """Return the number in a key of `number_key`."""
    return int(struct.unpack(">Q", key)[0])


def held_key(segment: int, step: int) -> bytes:
    """Return the key of a segment's record of a step; the step before the first is -1."""
    return struct.pack(">IQ", segment, step + 1)


def held_of(key: bytes | memoryview) -> tuple[int, int]:
    """Return (segment, step) of a key of `held_key`."""
    segment, step = struct.unpack(">IQ", key)
    return segment, step - 1


def table_key(table: str, key: bytes) -> bytes:
    """Return the key of a small value; the key contains its length, so that no key is the beginning of another."""
    name = table.encode()
    out = struct.pack(">HH", len(name), len(key)) + name + key
    if len(out) > KEY_BYTES_MAX - 18:
        limit = KEY_BYTES_MAX - 22 - len(name)
        raise CapacityError(f"the key of a small value is too long: table={table} bytes={len(key)} bytes_max={limit}")
    return out
