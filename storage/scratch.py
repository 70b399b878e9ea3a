"""The scratch environment of a worker: the state that steps since the opened version made. It is never synced, never
reopened.

Its folder is named by epoch and boot. Only `open` makes it, and other processes find it by its epoch. A scratch of
another epoch or another boot is garbage. So power loss can damage only state that recovery discards. `open` makes the
scratch inside the durable transaction that has checked the epoch, once per epoch: a late `open` does not discard a
newer scratch.

Tables:

- `meta`: opened version, base step, next step, next chunk number, the number below which merges leave chunks alone, and
  the step that merges nothing
- `held`: (segment, step) -> record
- `chunks`
- `values`: small values since the opened version
- `pins`: the cut of a commit under way
- `leases`: the sorted numbers of the chunks that a reader of an older step needs, or the version that is held for the copies
- `named`: (named lease, trace) -> manifest (see the module `leases`)
- `behind`: the version that is held for the copies (see the module `behind`)

Invariants:

1. Of each segment the last two finished steps are held, and each is written once.
2. A chunk stays while a held record, a pin or a lease refers to it (invariant 12).
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np
import numpy.typing as npt

from dbsp.errors import DataError, UnavailableError
from dbsp.lmdb_environments import data_file
from dbsp.storage import records, registry
from dbsp.storage.chunkfile import Shelf
from dbsp.storage.durable import ids_of
from dbsp.storage.environment import DatabaseEnvironment, create_environment
from dbsp.storage.records import Record, held_key, held_of, number_key, number_of
from dbsp.storage.tables import Txn

_OPENED, _BASE, _STEP, _NEXT_CHUNK, _EPOCH = b"opened", b"base", b"step", b"next chunk", b"epoch"
_KEPT_BELOW, _CUTS, _RESTS, _HOLD_TRY = b"kept below", b"cuts", b"rests", b"hold try"
_NEXT_LEASE = b"next lease"
_PREFIX, _RUBBISH = "scratch-", "rubbish-"

RUBBISH_WAITS_S = 5.0
"""Maximum seconds until old files are deleted, if no step runs before."""


def boot_id() -> str:
    """Return the name of the running kernel's boot; where there is none, only the epoch distinguishes scratch folders."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return "unknown-boot"


def folder_of(home: Path, epoch: int) -> Path:
    """Return the folder of an epoch's scratch."""
    return home / f"{_PREFIX}{epoch}-{boot_id()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """The first content of a new scratch; with `rests`, the first step merges no existing chunk."""

    epoch: int
    version: int
    base_step: int
    step: int
    next_chunk: int
    rests: bool


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
            self.folder, lambda: DatabaseEnvironment(self.folder, map_size_bytes, sync=False)
        )

    @staticmethod
    def create(home: Path, start: Start, map_size_bytes: int) -> list[Path]:
        """Make the scratch of an epoch, and rename all other scratch folders; return the renamed folders, for deletion.

        The caller holds the write lock of the durable side, so no other process makes or renames a scratch here
        meanwhile.
        """
        rubbish = _set_aside(home)
        temporary = home / f"{_RUBBISH}{uuid.uuid4().hex}"

        def fill(txn: Txn) -> None:
            numbers = {
                _EPOCH: start.epoch,
                _OPENED: start.version,
                _BASE: start.base_step,
                _STEP: start.step,
                _NEXT_CHUNK: start.next_chunk,
            }
            if start.rests:
                numbers[_RESTS] = start.base_step
            for key, number in numbers.items():
                txn.put("meta", key, number_key(number))

        create_environment(temporary, map_size_bytes, sync=False, fill=fill)
        temporary.rename(folder_of(home, start.epoch))
        return rubbish

    def is_current(self) -> bool:
        """Return whether the folder still holds the file that was opened."""
        return registry.is_current(self.environment, self.folder)

    def close(self) -> None:
        """Release the environment."""
        registry.release(self.environment)

    def shelf(self, txn: Txn) -> Shelf:
        """Return the scratch side as a source of chunks; it was written since boot, so nothing is checked."""
        return Shelf(environment=self.environment, txn=txn, check=False)

    # ---- single numbers

    def _number(self, txn: Txn, key: bytes) -> int:
        """Return a number of `meta`; raise `DataError` if it is missing."""
        value = txn.get("meta", key)
        if value is None:
            raise DataError(f"the scratch is incomplete: file={data_file(self.folder)} key={key.decode()}")
        return number_of(value)

    def _set(self, txn: Txn, key: bytes, number: int) -> None:
        """Write a number of `meta`."""
        txn.put("meta", key, number_key(number))

    def opened(self, txn: Txn) -> int:
        """Return the opened version."""
        return self._number(txn, _OPENED)

    def base_step(self, txn: Txn) -> int:
        """Return the step that follows the opened version."""
        return self._number(txn, _BASE)

    def step(self, txn: Txn) -> int:
        """Return the next step to apply."""
        return self._number(txn, _STEP)

    def set_step(self, txn: Txn, step: int) -> None:
        """Set the next step to apply."""
        self._set(txn, _STEP, step)

    def set_base(self, txn: Txn, version: int, base_step: int, step: int) -> None:
        """Record a finished commit, whose version is the opened version from now on."""
        self._set(txn, _OPENED, version)
        self._set(txn, _BASE, base_step)
        self._set(txn, _STEP, step)

    def next_chunk(self, txn: Txn) -> int:
        """Return the next chunk number; the caller stores the new one when done."""
        return self._number(txn, _NEXT_CHUNK)

    def set_next_chunk(self, txn: Txn, number: int) -> None:
        """Store the next chunk number."""
        self._set(txn, _NEXT_CHUNK, number)

    def kept_below(self, txn: Txn, step: int) -> int:
        """Return the chunk number below which a step merges no chunks; 0 if it may merge all.

        The first step of a version that was made of slices merges no chunks, because a user waits for its outputs after
        the rescale. The number depends only on the version and the step, so a replay merges in the same way.
        """
        if self.rests(txn, step):
            return self.next_chunk(txn)
        value = txn.get("meta", _KEPT_BELOW)
        return 0 if value is None else number_of(value)

    def rests(self, txn: Txn, step: int) -> bool:
        """Return whether a step merges no existing chunk."""
        value = txn.get("meta", _RESTS)
        return value is not None and step == number_of(value)

    def cuts(self, txn: Txn) -> tuple[int, ...]:
        """Return the key hashes at which new chunks end while merges are held."""
        value = txn.get("meta", _CUTS)
        return () if value is None else tuple(np.frombuffer(bytes(value), "<u8").tolist())

    def hold_merges(self, txn: Txn, layout_version: int, cuts: Sequence[int]) -> None:
        """Hold merges of all existing chunks, and end new chunks at `cuts`, for the warm-up of this layout.

        **Errors** `UnavailableError` where that warm-up is over: this attempt is late.
        """
        newest, over = self._hold_try(txn)
        if newest > layout_version or (newest == layout_version and over):
            story = f"layout_version={layout_version} newest={newest}"
            raise UnavailableError(f"this warm-up is over: {story}", "ask for the rescale again")
        if newest == layout_version:
            return
        self._set_hold_try(txn, layout_version, over=False)
        txn.put("meta", _CUTS, np.array(cuts, "<u8").tobytes())
        self._keep_all(txn)

    def end_hold(self, txn: Txn, layout_version: int) -> None:
        """Let merges go on, unless a later warm-up holds them."""
        if self._hold_try(txn)[0] > layout_version:
            return
        self._set_hold_try(txn, layout_version, over=True)
        txn.delete("meta", _KEPT_BELOW)
        txn.delete("meta", _CUTS)

    def _hold_try(self, txn: Txn) -> tuple[int, bool]:
        """Return the layout version of the newest warm-up that held merges, and whether it has ended; -1 if there is none."""
        value = txn.get("meta", _HOLD_TRY)
        return (-1, False) if value is None else (number_of(value[:8]), bytes(value[8:]) == b"\x01")

    def _set_hold_try(self, txn: Txn, layout_version: int, *, over: bool) -> None:
        """Note the newest warm-up."""
        txn.put("meta", _HOLD_TRY, number_key(layout_version) + bytes([over]))

    def _keep_all(self, txn: Txn) -> None:
        """Hold merges of all existing chunks."""
        self._set(txn, _KEPT_BELOW, self.next_chunk(txn))

    def skip_numbers(self, count: int, least: int) -> int:
        """Reserve `count` chunk numbers, none below `least`, that no step will use; return the first."""

        def skipped(txn: Txn) -> int:
            first = max(least, self.next_chunk(txn))
            self.set_next_chunk(txn, first + count)
            return first

        return self.environment.write(skipped)

    # ---- steps

    def held(self, txn: Txn, segment: int, step: int) -> Record | None:
        """Return a segment's record of a step; None if it is not held."""
        value = txn.get("held", held_key(segment, step))
        return None if value is None else self._decoded(value)

    def has(self, txn: Txn, segment: int, step: int) -> bool:
        """Return whether a segment holds a step."""
        return txn.get("held", held_key(segment, step)) is not None

    def _decoded(self, value: Any) -> Record:
        """Decode a record of this environment."""
        return records.decode_record(bytes(value), f"file={data_file(self.folder)}")

    def held_steps(self, txn: Txn) -> dict[int, list[int]]:
        """Return the steps that are held, by segment, in order."""
        found: dict[int, list[int]] = {}
        for key in txn.keys("held"):
            segment, step = held_of(key)
            found.setdefault(segment, []).append(step)
        return found

    def add(self, txn: Txn, written: dict[int, bytearray]) -> None:
        """Write chunks of one trace; empty the dictionary, because LMDB has its own copy of each value."""
        for number in sorted(written):
            txn.put("chunks", number_key(number), written.pop(number))

    def hold(self, txn: Txn, segment: int, step: int, record: Record, gone: Iterable[int]) -> None:
        """Write a segment's record of a step; delete records of steps before step - 1, and the chunks in `gone`.

        A chunk of a pinned cut or a lease stays.
        """
        for old in self.held_steps(txn).get(segment, []):
            if old < step - 1:
                txn.delete("held", held_key(segment, old))
        txn.put("held", held_key(segment, step), records.encode_record(record))
        for number in np.setdiff1d(np.array(list(gone), np.uint64), self._needed(txn)).tolist():
            txn.delete("chunks", number_key(number))

    def _needed(self, txn: Txn) -> npt.NDArray[np.uint64]:
        """Return the numbers of the chunks that a pin or a lease refers to."""
        return np.union1d(ids_of(self.pins(txn)), self.leased(txn))

    def held_records(self, txn: Txn) -> list[Record]:
        """Return every record that is held."""
        return [self._decoded(value) for _, value in txn.items("held")]

    def all_records(self, txn: Txn) -> list[Record]:
        """Return every record that is held, and the pins."""
        return self.held_records(txn) + self.pins(txn)

    # ---- the cut of a commit

    def pins(self, txn: Txn) -> list[Record]:
        """Return the cuts of commits under way."""
        return [self._decoded(value) for key, value in txn.items("pins") if len(key) == len(number_key(0))]

    def pin(self, txn: Txn, version: int) -> Record | None:
        """Return the cut that is to become this version; None if it is not pinned."""
        value = txn.get("pins", number_key(version))
        return None if value is None else self._decoded(value)

    def pinned_values(self, txn: Txn, version: int) -> dict[bytes, bytes | None]:
        """Return the small values of a cut; None stands for a deleted value."""
        prefix = number_key(version) + b"="
        return {key[len(prefix) :]: _decoded(value) for key, value in txn.items("pins", prefix)}

    def set_pin(self, txn: Txn, version: int, record: Record) -> None:
        """Keep a cut, its chunks and its small values until the commit has landed.

        Where merges are held, merges of the cut's chunks are held as well.
        """
        if txn.has("meta", _KEPT_BELOW):
            self._keep_all(txn)
        txn.put("pins", number_key(version), records.encode_record(record))
        for key, value in self.values(txn).items():
            raw = b"\x00" if value is None else b"\x01" + value
            txn.put("pins", number_key(version) + b"=" + key, raw)

    def landed(self, txn: Txn, version: int, copied: npt.NDArray[np.uint64]) -> None:
        """Forget the pin of a durable version, the small values that it contains, and the copied chunks."""
        for key, value in self.pinned_values(txn, version).items():
            if self.value(txn, key) == (True, value):
                txn.delete("values", key)
            txn.delete("pins", number_key(version) + b"=" + key)
        txn.delete("pins", number_key(version))
        for number in copied.tolist():
            txn.delete("chunks", number_key(number))

    # ---- leases

    def leased(self, txn: Txn) -> npt.NDArray[np.uint64]:
        """Return the numbers of the chunks that leases hold."""
        parts = [np.frombuffer(bytes(value), "<u8") for _, value in txn.items("leases")]
        return np.concatenate([np.empty(0, np.uint64), *parts])

    def add_lease(self, txn: Txn, ids: npt.NDArray[np.uint64]) -> bytes:
        """Hold these chunks until `end_lease`; return the key of the lease."""
        value = txn.get("meta", _NEXT_LEASE)
        number = 0 if value is None else number_of(value)
        self._set(txn, _NEXT_LEASE, number + 1)
        txn.put("leases", number_key(number), ids.astype("<u8").tobytes())
        return number_key(number)

    def end_lease(self, txn: Txn, key: bytes) -> None:
        """End a lease; delete the chunks that no record and no other lease refers to."""
        value = txn.get("leases", key)
        if value is None:
            return
        ids = np.frombuffer(bytes(value), "<u8")
        txn.delete("leases", key)
        kept = np.union1d(ids_of(self.all_records(txn)), self.leased(txn))
        for chunk in np.setdiff1d(ids, kept).tolist():
            txn.delete("chunks", number_key(chunk))

    # ---- small values

    def value(self, txn: Txn, key: bytes) -> tuple[bool, bytes | None]:
        """Return whether a small value was written since the opened version, and the value (None: deleted)."""
        raw = txn.get("values", key)
        if raw is None:
            return False, None
        return True, _decoded(raw)

    def put_value(self, txn: Txn, key: bytes, value: bytes | None) -> None:
        """Write or delete a small value."""
        txn.put("values", key, b"\x00" if value is None else b"\x01" + value)

    def values(self, txn: Txn) -> dict[bytes, bytes | None]:
        """Return all small values written since the opened version."""
        return {key: _decoded(value) for key, value in txn.items("values")}


def _decoded(raw: memoryview) -> bytes | None:
    """Decode a stored small value: 1 and the bytes, or 0 for deleted."""
    return bytes(raw[1:]) if bytes(raw[:1]) == b"\x01" else None


class Rubbish:
    """Old scratch folders, which a thread deletes once steps run again (`delete`), or after `RUBBISH_WAITS_S` seconds.

    Deleting a file as large as the state takes a while, and syncs of other files wait for it. Opening a version needs
    some syncs, and so does writing the first step's outputs. Folders that are left when a process ends are deleted by
    the next `open`.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        """Start the thread, which waits."""
        self._may_go = Event()
        self._thread = Thread(target=self._delete, args=(tuple(folders),), name="dbsp-rubbish", daemon=True)
        self._thread.start()

    def _delete(self, folders: Sequence[Path]) -> None:
        """Wait until steps go on, then delete the folders; runs in the thread."""
        self._may_go.wait(RUBBISH_WAITS_S)
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)

    def delete(self) -> None:
        """Let the thread delete the folders now, while the caller goes on."""
        self._may_go.set()

    def settle(self) -> None:
        """Delete the folders that are left, and wait until that is done."""
        self._may_go.set()
        self._thread.join()


def _set_aside(home: Path) -> list[Path]:
    """Rename every scratch folder, whatever its epoch; return all folders that are garbage."""
    for folder in list(home.iterdir()):
        if folder.name.startswith(_PREFIX):
            folder.rename(home / f"{_RUBBISH}{uuid.uuid4().hex}")
    return [folder for folder in home.iterdir() if folder.name.startswith(_RUBBISH)]
