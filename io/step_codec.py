"""Step records as bytes (canonical JSON after a checksum), and the two checks of every step log's append.

Equal records give equal bytes. `advance` checks invariant 7: a range begins where the partition's previous one ended.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dbsp.errors import DataError, FencedError
from dbsp.logs import Range, StepRecord
from dbsp.logs.step_commands import deferred
from dbsp.steps.timing import Waterline, places_of
from dbsp.stored.format_numbers import check_format

FORMAT, UNNAMED = 1, 1
"""The present format, and the only one whose records do not name it in a field `format`."""

_CHECKSUM = struct.Struct("<I")
Positions = dict[tuple[str, int], int]
"""The next offset to read, per (table, partition)."""


def seal(value: Any) -> bytes:
    """Return a JSON value in its one canonical form, after its checksum."""
    if FORMAT != UNNAMED:
        value = {**value, "format": FORMAT}
    data = json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
    return _CHECKSUM.pack(zlib.crc32(data)) + data


def unseal(data: bytes, where: str) -> Any:
    """Return the JSON value of sealed bytes; `DataError` with `where` if the checksum differs."""
    body = data[_CHECKSUM.size :]
    if len(data) <= _CHECKSUM.size or _CHECKSUM.unpack_from(data)[0] != zlib.crc32(body):
        raise DataError(f"a step log record is damaged: {where}")
    value = json.loads(body)
    check_format("a log record", where, value.get("format", UNNAMED), FORMAT)
    return value


def record_to_json(record: StepRecord) -> dict[str, Any]:
    """Return a step record as a JSON object.

    The idle partitions are left out if there are none; version 0.1.0 skips the field.
    """
    idle = {"idle": [list(place) for place in record.idle]} if record.idle else {}
    return {
        "epoch": record.epoch,
        "step": record.step,
        "layout_version": record.layout_version,
        "ranges": [[r.table, r.partition, r.first, r.last] for r in record.ranges],
        "clock_us": record.clock_us,
        "engine": record.engine,
        "commands": list(record.commands),
        "clock_before_us": record.clock_before_us,
        "waterlines": [[line.node, line.before_us, line.now_us] for line in record.waterlines],
    } | idle


def record_from_json(value: Mapping[str, Any]) -> StepRecord:
    """Return the step record of a JSON object."""
    ranges = tuple(Range(table=t, partition=p, first=f, last=e) for t, p, f, e in value["ranges"])
    fields = {name: value[name] for name in ("epoch", "step", "layout_version", "clock_us", "engine")}
    lines = (Waterline(node=n, before_us=before, now_us=now) for n, before, now in value.get("waterlines", ()))
    return StepRecord(
        ranges=ranges, commands=tuple(value["commands"]), clock_before_us=value.get("clock_before_us"),
        waterlines=tuple(lines), idle=places_of(value.get("idle", ())), **fields,
    )  # fmt: skip


def positions_to_json(positions: Positions) -> list[list[Any]]:
    """Return positions as a sorted list."""
    return [[table, partition, offset] for (table, partition), offset in sorted(positions.items())]


def positions_from_json(value: list[list[Any]]) -> Positions:
    """Return the positions of a list."""
    return {(table, partition): offset for table, partition, offset in value}


def check_owner(record: StepRecord, newest: int) -> None:
    """Raise `FencedError` unless the record carries the newest epoch."""
    check_epoch(record.epoch, record.step, newest)


def check_epoch(epoch: int, step: int, newest: int) -> None:
    """Raise `FencedError` unless the epoch is the newest."""
    if epoch != newest:
        raise FencedError(f"another coordinator owns the step log: step={step} epoch={epoch} newest={newest}")


def decided(record: StepRecord, command: str) -> StepRecord:
    """Return the record with one more command, without a second copy; a `defer` command cuts its ranges."""
    if command in record.commands:
        return record
    return replace(record, commands=(*record.commands, command), ranges=deferred(record.ranges, command))


def given_back(before: StepRecord, after: StepRecord, positions: Positions) -> Positions:
    """Return the positions after a decision has left some rows of a record to later steps.

    **Errors** `DataError` if a later record has taken rows of the same partition: it has to give them back first.
    """
    kept = {(each.table, each.partition): each.last for each in after.ranges}
    found = dict(positions)
    for each in before.ranges:
        place = (each.table, each.partition)
        end = kept.get(place, each.first)
        if end == each.last:
            continue
        if found.get(place) != each.last:
            raise DataError(
                f"a later step has rows of this partition: step={before.step} table={each.table} partition={each.partition}"
                f" last={each.last} next={found.get(place)}"
            )
        found[place] = end
    return found


def advance(record: StepRecord, next_step: int, positions: Positions) -> Positions:
    """Return the positions after the record; `DataError` if its step is not next, or a range leaves a gap or overlaps."""
    if record.step != next_step:
        raise DataError(f"a step record is out of order: step={record.step} next={next_step}")
    after = dict(positions)
    for range_ in record.ranges:
        place = (range_.table, range_.partition)
        where = f"step={record.step} table={range_.table} partition={range_.partition} first={range_.first} last={range_.last}"
        if range_.first != after.get(place, range_.first):
            raise DataError(
                f"a step's input range does not follow the one before: {where} expected_first={after[place]}"
            )
        if range_.last < range_.first or range_.first < 0:
            raise DataError(f"a step's input range is backwards: {where}")
        after[place] = range_.last
    return after
