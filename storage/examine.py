"""Examine a worker's database for `coordinator doctor`: every chunk of every version, read only, past the first
damage.

The caller first walks the structure of the file (pages, trees, free list). LMDB trusts its pages, so LMDB must not
open a file whose structure is broken. The scratch is not examined, because every start discards it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dbsp.errors import DataError
from dbsp.lmdb_environments import BROKEN_FILE, data_file, open_to_read
from dbsp.storage import records
from dbsp.storage.chunkfile import payload_of
from dbsp.storage.durable import refs_of_states
from dbsp.storage.environment import DATABASE
from dbsp.storage.records import Record, number_key, number_of
from dbsp.storage.tables import Txn
from dbsp.store import VersionInfo
from dbsp.store.findings import UNREADABLE, Examined
from dbsp.trace.chunks import ChunkRef
from dbsp.trace.manifest import StoredBatch
from dbsp.zset.encoding import verify as verify_encoded

REMEDY = (
    "stop the pipeline and restore this worker's folder, all of it, from a backup of the same moment as the others';"
    " without one start over with an empty data_dir"
)


def durable_file(home: Path) -> Path:
    """Return the path of the file that holds a worker's versions."""
    return data_file(home / "durable")


def examine_database(home: Path, worker: int, remedy: str = REMEDY) -> Examined:
    """Read all versions and all their chunks; `remedy` is the advice for damage.

    **Cost** reads everything once, in one read transaction. A running service continues, but LMDB reuses no pages meanwhile.
    """
    file = durable_file(home)
    seen = Examined(file=file, remedy=remedy, worker=worker)
    with seen.guarded(also=BROKEN_FILE), reading(file.parent) as txn:
        if txn.get("meta", b"epoch") is None:
            seen.found("the database has no epoch")
        found = _versions(txn, seen)
        if not found:
            seen.found("the database holds no version that can be read")
        _chunks(txn, found, seen)
    return seen


def versions_in(home: Path) -> tuple[VersionInfo, ...]:
    """Return the versions of a worker without opening its database for writing; raise `DataError` if it cannot be read."""
    file = durable_file(home)
    try:
        with reading(file.parent) as txn:
            return tuple(
                VersionInfo(version=number_of(key), checkpoint=_record(file, key, value).checkpoint)
                for key, value in txn.items("versions")
            )
    except BROKEN_FILE as error:
        raise DataError(f"the database cannot be read: file={file} cause={error}", REMEDY) from error


def epoch_in(home: Path) -> int:
    """Return the newest epoch that a worker's database has seen; raise `DataError` if it cannot be read."""
    file = durable_file(home)
    try:
        with reading(file.parent) as txn:
            value = txn.get("meta", b"epoch")
            return 0 if value is None else number_of(value)
    except BROKEN_FILE as error:
        raise DataError(f"the database cannot be read: file={file} cause={error}", REMEDY) from error


@contextmanager
def reading(folder: Path) -> Iterator[Txn]:
    """Yield a read transaction on an environment that is opened read-only."""
    DATABASE.check(folder)
    env = open_to_read(folder)
    try:
        with env.begin(buffers=True) as txn:
            yield Txn(txn, writes=False)
    finally:
        env.close()


def _record(file: Path, key: bytes, value: memoryview) -> Record:
    return records.decode_record(bytes(value), f"file={file} version={number_of(key)}")


def _versions(txn: Txn, seen: Examined) -> dict[int, Record]:
    """Return the records of all versions that can be read, by version."""
    found = {}
    for key, value in txn.items("versions"):
        with seen.guarded(f"version={number_of(key)}"):
            found[number_of(key)] = _record(seen.file, key, value)
            seen.count("versions")
    return found


def _chunks(txn: Txn, versions: dict[int, Record], seen: Examined) -> None:
    """Check every chunk that a version refers to, once, against all its checksums."""
    states = {version: list(record.traces.values()) for version, record in versions.items()}
    named = {version: {ref.id for ref in StoredBatch(refs_of_states(found))} for version, found in states.items()}
    for ref in StoredBatch(refs_of_states(state for found in states.values() for state in found)):
        try:
            seen.count("bytes", _check(txn, ref, seen.file))
            seen.count("chunks")
        except UNREADABLE as error:
            story = error.message if isinstance(error, DataError) else f"{type(error).__name__}: {error}"
            needed = [version for version, numbers in sorted(named.items()) if ref.id in numbers]
            seen.found(f"{story} versions={needed}", chunk=ref.id)


def _check(txn: Txn, ref: ChunkRef, file: Path) -> int:
    """Return the bytes of a chunk; raise `DataError` if it is missing or broken."""
    value = txn.get("chunks", number_key(ref.id))
    if value is None:
        raise DataError(f"a chunk is missing: file={file} chunk={ref.id}")
    payload = payload_of(value, ref, file)
    try:
        verify_encoded(payload)
    except DataError as error:
        raise DataError(f"a chunk is broken: file={file} chunk={ref.id} cause={error.message}") from error
    return len(payload)
