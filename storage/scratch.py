"""The scratch environment of a worker: what the steps since the opened version have made. Never synced, never reopened.

Its folder is named by epoch and boot, made only by `open`, and found by other processes by its epoch; one of another epoch or
another boot is rubbish. So power loss can hurt only what recovery throws away.

Tables: `meta` (opened version, base step, next step, next chunk number), `held` ((segment, step) -> record), `chunks`,
`values` (small values since the opened version), `pins` (the cut of a commit under way).

Invariants:
1. Of each segment the last two finished steps are held, and written once each.
2. A chunk stays while a held record or a pin refers to it (invariant 12).
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from dbsp.storage import records, registry
from dbsp.storage.chunkfile import Shelf
from dbsp.storage.durable import ids_of
from dbsp.storage.environment import Environment, Txn, create_environment, data_file
from dbsp.storage.records import Record, held_key, held_of, number_key, number_of

from dbsp.errors import DataError, UnavailableError

TABLES = ("meta", "held", "chunks", "values", "pins")
_OPENED, _BASE, _STEP, _NEXT_CHUNK, _EPOCH = b"opened", b"base", b"step", b"next chunk", b"epoch"
_PREFIX, _RUBBISH = "scratch-", "rubbish-"


def boot_id() -> str:
    """A name of the running kernel's boot; where there is none, scratch folders are told apart by epoch alone."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return "unknown-boot"


def folder_of(home: Path, epoch: int) -> Path:
    """Where the scratch of an epoch lies."""
    return home / f"{_PREFIX}{epoch}-{boot_id()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What a new scratch begins with."""

    epoch: int
    version: int
    base_step: int
    step: int
    next_chunk: int


class Scratch:
    """A worker's scratch side, opened in this process."""

    def __init__(self, home: Path, epoch: int, map_size_bytes: int) -> None:
        """Attach to the scratch of an epoch; `UnavailableError` if it is not here."""
        self.folder = folder_of(home, epoch)
        self.epoch = epoch
        missing = f"no scratch of this epoch: epoch={epoch} folder={self.folder}"
        if not data_file(self.folder).exists():
            raise UnavailableError(missing, "roll back: open the checkpointed version in a new epoch")
        self.environment = registry.acquire(
            self.folder, lambda: Environment(self.folder, TABLES, map_size_bytes, sync=False)
        )

    @staticmethod
    def create(home: Path, start: Start, map_size_bytes: int) -> None:
        """Make the scratch of an epoch, in place of any other."""
        discard_all(home)
        temporary = home / f"{_RUBBISH}{uuid.uuid4().hex}"

        def fill(txn: Txn, tables: dict[str, Any]) -> None:
            numbers = {
                _EPOCH: start.epoch,
                _OPENED: start.version,
                _BASE: start.base_step,
                _STEP: start.step,
                _NEXT_CHUNK: start.next_chunk,
            }
            for key, number in numbers.items():
                txn.put(key, number_key(number), db=tables["meta"])

        create_environment(temporary, TABLES, map_size_bytes, sync=False, fill=fill)
        temporary.rename(folder_of(home, start.epoch))

    def close(self) -> None:
        """Give the files back."""
        registry.release(self.environment)

    def shelf(self, txn: Txn) -> Shelf:
        """The scratch side as a place to read chunks from; it was written since boot, so nothing is checked."""
        return Shelf(environment=self.environment, txn=txn, check=False)

    # ---- single numbers

    def _number(self, txn: Txn, key: bytes) -> int:
        """A number of `meta`."""
        value = txn.get(key, db=self.environment.table("meta"))
        if value is None:
            raise DataError(f"the scratch is incomplete: file={data_file(self.folder)} key={key.decode()}")
        return number_of(value)

    def _set(self, txn: Txn, key: bytes, number: int) -> None:
        """Write a number of `meta`."""
        txn.put(key, number_key(number), db=self.environment.table("meta"))

    def opened(self, txn: Txn) -> int:
        """The opened version."""
        return self._number(txn, _OPENED)

    def base_step(self, txn: Txn) -> int:
        """The step that follows the opened version."""
        return self._number(txn, _BASE)

    def step(self, txn: Txn) -> int:
        """The next step to apply."""
        return self._number(txn, _STEP)

    def set_step(self, txn: Txn, step: int) -> None:
        """Set the next step to apply."""
        self._set(txn, _STEP, step)

    def set_base(self, txn: Txn, version: int, base_step: int, step: int) -> None:
        """A commit has landed: this version is the opened one now."""
        self._set(txn, _OPENED, version)
        self._set(txn, _BASE, base_step)
        self._set(txn, _STEP, step)

    def next_chunk(self, txn: Txn) -> int:
        """The next chunk number; the caller stores it back when done."""
        return self._number(txn, _NEXT_CHUNK)

    def set_next_chunk(self, txn: Txn, number: int) -> None:
        """Store the next chunk number."""
        self._set(txn, _NEXT_CHUNK, number)

    # ---- steps

    def held(self, txn: Txn, segment: int, step: int) -> Record | None:
        """What a segment holds of a step."""
        value = txn.get(held_key(segment, step), db=self.environment.table("held"))
        return None if value is None else self._decoded(value)

    def has(self, txn: Txn, segment: int, step: int) -> bool:
        """Whether a segment holds a step."""
        return txn.get(held_key(segment, step), db=self.environment.table("held")) is not None

    def _decoded(self, value: Any) -> Record:
        """A record out of this environment."""
        return records.decode_record(bytes(value), f"file={data_file(self.folder)}")

    def held_steps(self, txn: Txn) -> dict[int, list[int]]:
        """The steps held, by segment, in order."""
        found: dict[int, list[int]] = {}
        with txn.cursor(db=self.environment.table("held")) as cursor:
            for key in cursor.iternext(keys=True, values=False):
                segment, step = held_of(key)
                found.setdefault(segment, []).append(step)
        return found

    def hold(
        self, txn: Txn, segment: int, step: int, record: Record, written: Mapping[int, bytes], gone: Iterable[int]
    ) -> None:
        """Write what a segment made of a step; let go of older steps than step - 1, and of chunks that only they had."""
        held, chunks = self.environment.table("held"), self.environment.table("chunks")
        for number, value in written.items():
            txn.put(number_key(number), value, db=chunks)
        for old in self.held_steps(txn).get(segment, []):
            if old < step - 1:
                txn.delete(held_key(segment, old), db=held)
        txn.put(held_key(segment, step), records.encode_record(record), db=held)
        pinned = set(ids_of(self.pins(txn)).tolist())
        for number in gone:
            if number not in pinned:
                txn.delete(number_key(number), db=chunks)

    def all_records(self, txn: Txn) -> list[Record]:
        """Every record held, and the pins."""
        with txn.cursor(db=self.environment.table("held")) as cursor:
            return [self._decoded(value) for _, value in cursor] + self.pins(txn)

    # ---- the cut of a commit

    def pins(self, txn: Txn) -> list[Record]:
        """The cuts of commits under way."""
        with txn.cursor(db=self.environment.table("pins")) as cursor:
            return [self._decoded(value) for key, value in cursor if len(key) == len(number_key(0))]

    def pin(self, txn: Txn, version: int) -> Record | None:
        """The cut that is to become a version."""
        value = txn.get(number_key(version), db=self.environment.table("pins"))
        return None if value is None else self._decoded(value)

    def pinned_values(self, txn: Txn, version: int) -> dict[bytes, bytes | None]:
        """The small values of a cut."""
        prefix, found = number_key(version) + b"=", {}
        with txn.cursor(db=self.environment.table("pins")) as cursor:
            there = cursor.set_range(prefix)
            while there and bytes(cursor.key()[: len(prefix)]) == prefix:
                raw = bytes(cursor.value())
                found[bytes(cursor.key())[len(prefix) :]] = raw[1:] if raw[:1] == b"\x01" else None
                there = cursor.next()
        return found

    def set_pin(self, txn: Txn, version: int, record: Record) -> None:
        """Keep a cut, its chunks and its small values, until the commit has landed."""
        pins = self.environment.table("pins")
        txn.put(number_key(version), records.encode_record(record), db=pins)
        for key, value in self.values(txn).items():
            raw = b"\x00" if value is None else b"\x01" + value
            txn.put(number_key(version) + b"=" + key, raw, db=pins)

    def landed(self, txn: Txn, version: int, copied: npt.NDArray[np.uint64]) -> None:
        """The version is durable: forget its pin, the values it took, and chunks that the durable side has now."""
        for key, value in self.pinned_values(txn, version).items():
            if self.value(txn, key) == (True, value):
                txn.delete(key, db=self.environment.table("values"))
            txn.delete(number_key(version) + b"=" + key, db=self.environment.table("pins"))
        txn.delete(number_key(version), db=self.environment.table("pins"))
        for number in copied.tolist():
            txn.delete(number_key(number), db=self.environment.table("chunks"))

    # ---- small values

    def value(self, txn: Txn, key: bytes) -> tuple[bool, bytes | None]:
        """Whether a small value was written since the opened version, and which (None: deleted)."""
        raw = txn.get(key, db=self.environment.table("values"))
        if raw is None:
            return False, None
        return True, bytes(raw[1:]) if bytes(raw[:1]) == b"\x01" else None

    def put_value(self, txn: Txn, key: bytes, value: bytes | None) -> None:
        """Write or delete a small value."""
        txn.put(key, b"\x00" if value is None else b"\x01" + value, db=self.environment.table("values"))

    def values(self, txn: Txn) -> dict[bytes, bytes | None]:
        """All small values written since the opened version."""
        with txn.cursor(db=self.environment.table("values")) as cursor:
            raw: Iterable[tuple[bytes, bytes]] = [(bytes(key), bytes(value)) for key, value in cursor]
        return {key: value[1:] if value[:1] == b"\x01" else None for key, value in raw}


def discard_all(home: Path) -> None:
    """Throw away every scratch folder, whatever its epoch."""
    for folder in list(home.iterdir()):
        if folder.name.startswith(_PREFIX):
            rubbish = home / f"{_RUBBISH}{uuid.uuid4().hex}"
            with suppress(FileNotFoundError):
                os.rename(folder, rubbish)  # noqa: PTH104 (Path.rename does the same; a lost race must be told apart)
    for folder in list(home.iterdir()):
        if folder.name.startswith(_RUBBISH):
            shutil.rmtree(folder, ignore_errors=True)
