"""Hold the version that lagging copies read, in the scratch, until the copy of the next version begins.

With `copies_required = 0` a version is published before it is whole among the copies. The database may drop the version while
it is copied. So the first piece of a copy *holds* the version: the scratch gets a lease on its chunks, its record, and its
small values. A hold ends when the next version is held, or with its epoch.

Invariants:

1. A held version is copied as it was: its record and small values are kept byte for byte, its chunks never change
   (invariant 12).
2. The hold may be late, after chunks were deleted. Then the copy is refused, and a newer version is chosen.
3. Output progress is kept from the step that the owner names (`needed_from`). All stays until this epoch's owner names a step.

Source: docs/design/0055-copies-that-lag.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dbsp.errors import UnavailableError
from dbsp.processes import noted
from dbsp.storage.durable import Durable, ids_of
from dbsp.storage.records import Record, decode_record, number_key, number_of
from dbsp.storage.scratch import Scratch
from dbsp.storage.tables import Txn
from dbsp.store import CheckpointId

_LEASE, _VERSION, _RECORD, _NEEDED, _VALUE = b"copies", b"version", b"record", b"needed", b"="


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldVersion:
    """A version that is held for the copies; `data` is its encoded record."""

    version: int
    data: bytes
    record: Record
    values: Mapping[bytes, bytes]

    @property
    def checkpoint(self) -> CheckpointId:
        """Return the checkpoint of which the version was made."""
        return self.record.checkpoint


def hold_version(
    scratch: Scratch, durable: Durable, version: int, checkpoint: CheckpointId, needed_from: int
) -> HeldVersion:
    """Hold a version in place of the version that was held before, and return it; a repeat returns the held version.

    Output progress below step `needed_from` may be trimmed from now on.

    **Errors** `UnavailableError` if the database does not have the version any more.
    """

    def held(txn: Txn) -> HeldVersion:
        txn.put("behind", _NEEDED, number_key(needed_from))
        there = _held(txn)
        if there is not None and (there.version, there.checkpoint) == (version, checkpoint):
            return there
        with durable.environment.reading() as durable_txn:
            durable.check_epoch(durable_txn, scratch.epoch)
            record = durable.record(durable_txn, version)
            if record.checkpoint != checkpoint:
                raise UnavailableError(f"another version has this number: version={version} folder={durable.folder}")
            data = bytes(durable_txn.get("versions", number_key(version)) or b"")
            values = small_values(durable_txn, durable, version)
        for key in list(txn.keys("behind")):
            if key != _NEEDED:
                txn.delete("behind", key)
        txn.put("behind", _VERSION, number_key(version))
        txn.put("behind", _RECORD, data)
        for key, value in values.items():
            txn.put("behind", _VALUE + key, value)
        txn.put("leases", _LEASE, ids_of([record]).astype("<u8").tobytes())
        return HeldVersion(version=version, data=data, record=record, values=values)

    with noted(durable.writers_folder, scratch.epoch):
        return scratch.environment.write(held)


def needed_from(scratch: Scratch) -> int:
    """Return the first step whose output progress is needed; 0 before the owner of this epoch has named a step."""
    with scratch.environment.reading() as txn:
        value = txn.get("behind", _NEEDED)
        return 0 if value is None else number_of(value)


def small_values(txn: Txn, source: Durable, version: int) -> dict[bytes, bytes]:
    """Return all small values of a version."""
    found = ((key, source.value(txn, version, key)) for key in source.value_keys(txn))
    return {key: value for key, value in found if value is not None}


def _held(txn: Txn) -> HeldVersion | None:
    """Return the held version, or None."""
    number, stored = txn.get("behind", _VERSION), txn.get("behind", _RECORD)
    if number is None or stored is None:
        return None
    data = bytes(stored)
    values = {bytes(key)[len(_VALUE) :]: bytes(value) for key, value in txn.items("behind", _VALUE)}
    record = decode_record(data, "a version held for the copies")
    return HeldVersion(version=number_of(number), data=data, record=record, values=values)
