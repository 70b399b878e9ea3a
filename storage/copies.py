"""Copies of a worker's versions as objects, in a place that no disk of the pipeline's hosts can take away.

A copy is what a standby is: the durable side of a database, and part of its commit. A version counts as committed when
the copy is whole too. So the place has each published version. A database that is lost with its host is made again from
there, on any host.

Objects of a worker, below its prefix:

- `chunks/<epoch>/<life>-<number>-<checksum>`: a chunk's value; the epoch is the one in which it was uploaded
- `versions/<version>-<epoch>-<life>-<checksum of the record>`: a manifest, which is the version's record, its small values and
  the names of its chunks
- `opened/<epoch>-<version>`: a mark that this version was opened in this epoch, so older epochs' later versions do not count

Invariants:

1. A manifest is put when all its chunks are there. So a version is whole or absent.
2. A chunk's name has the life of its database, its number and its checksum. So a retry puts the same bytes under the same
   name.
3. A version names chunks of the version it was made from, or chunks of its own epoch. So a chunk that has left the newest
   versions is never named again. A late task may delete and upload what it likes: no version that counts depends on it.
4. Chunks of older epochs that no manifest names are deleted when a version is opened. Chunks of the epoch itself stay, because
   another attempt may be about to name them.
5. No epoch can be compared in the place itself. So a late manifest does not count: the mark of a newer epoch is above it.
6. The manifest of a version that a checkpoint of the pipeline names stays, with its chunks (`copied_checkpoints`).

**Cost** the bytes of new chunks, and one manifest of some 100 bytes a chunk for each version.

Source: docs/design/0046-copies.md.
"""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from dbsp.disk import alone_in, make_folder, sync_path
from dbsp.errors import DataError, FencedError
from dbsp.object_places import ObjectPlace
from dbsp.processes import end_older, noted
from dbsp.storage.committing import chunk_values
from dbsp.storage.copied_checkpoints import CopiedCheckpoints
from dbsp.storage.durable import Durable, Root, refs_of_states
from dbsp.storage.records import Record, decode_record, number_key
from dbsp.storage.standby import DURABLE, WRITERS, make_bare, put_in_place
from dbsp.storage.tables import Txn
from dbsp.stored.format_numbers import check_format
from dbsp.trace.manifest import ID, NBYTES

FORMAT = 1
AT_ONCE = 8
"""Requests at once: an object store answers each in some 30 ms, however small the object is."""
_CHECKSUM_CHARS = 32


@dataclass(frozen=True, slots=True, order=True)
class _ManifestName:
    """The parts of a manifest's name; the order is that in which manifests were made."""

    epoch: int
    version: int
    life: str
    record: str

    @classmethod
    def of(cls, name: str) -> _ManifestName:
        version, epoch, life, record = name.rpartition("/")[2].split("-")
        return cls(int(epoch), int(version), life, record)

    def __str__(self) -> str:
        return f"versions/{self.version:020}-{self.epoch:020}-{self.life}-{self.record}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Manifest:
    """A version in the place: its record, its small values, and the name of each chunk's object."""

    record: bytes
    values: Mapping[bytes, bytes]
    chunks: Mapping[int, str]

    def encoded(self) -> bytes:
        body = {
            "format": FORMAT,
            "record": base64.b64encode(self.record).decode(),
            "values": [[base64.b64encode(part).decode() for part in pair] for pair in sorted(self.values.items())],
            "chunks": sorted(self.chunks.items()),
        }
        text = json.dumps(body)
        return f"{_checksum(text.encode())}\n{text}".encode()

    @classmethod
    def decoded(cls, data: bytes, where: str) -> _Manifest:
        checksum, _, text = data.partition(b"\n")
        if checksum.decode(errors="replace") != _checksum(text):
            raise DataError(f"a manifest of the copies is damaged: {where}", "restore the copies from elsewhere")
        body = json.loads(text)
        check_format("a manifest of the copies", where, body["format"], FORMAT)
        return cls(
            record=base64.b64decode(body["record"]),
            values={base64.b64decode(key): base64.b64decode(value) for key, value in body["values"]},
            chunks={int(number): name for number, name in body["chunks"]},
        )


@dataclass(slots=True)
class WorkerCopies:
    """The copies of one worker's versions, below `prefix` in a place.

    **State** what this process knows of the place, to save requests: it may be forgotten at any time.
    """

    place: ObjectPlace
    prefix: str
    checkpoints: CopiedCheckpoints | None = None
    _known: dict[_ManifestName, _Manifest] = field(default_factory=dict)
    _uploaded: dict[int, str] | None = None
    _uploaded_epoch: int = -1
    _whole: _ManifestName | None = None
    _goal: _ManifestName | None = None
    _listed: list[_ManifestName] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    # ---- following the database

    def follow(self, source: Durable, version: int, epoch: int, bytes_max: int | None = None) -> bool:
        """Upload about `bytes_max` more of a version that the copy lacks (None: all); return if the copy is whole now.

        **Errors** `FencedError` for an older epoch; `AwayError` while the place does not answer.
        """
        with self._lock:
            life = source.life(epoch)
            with source.environment.reading() as txn:
                source.check_epoch(txn, epoch)
                record, held = source.record(txn, version), _records(txn, source)
                values = _values(txn, source, version)
            goal = _ManifestName(record.checkpoint.epoch, version, life, _checksum(held[version]))
            if self._whole == goal:
                return True

            def of_database(names: Sequence[_ManifestName]) -> list[_ManifestName]:
                return [name for name in names if name.version in held and name.record == _checksum(held[name.version])]

            if self._goal != goal:
                self._goal, self._listed = goal, self._manifest_names(epoch)
            names = self._listed
            kept = of_database(names)
            if goal not in kept:
                chunks = self._upload(source, record, epoch, life, kept, bytes_max)
                if chunks is None:
                    return False
                names = self._manifest_names(
                    epoch
                )  # once more, because pieces may be minutes apart: a newer owner ends this
                kept = of_database(names)
                self._put_manifest(goal, _Manifest(record=held[version], values=values, chunks=chunks))
                kept.append(goal)
            self._drop([name for name in names if name not in kept and _is_past(name, version, epoch)])
            self._whole, self._uploaded = goal, {}
            return True

    def open(self, source: Durable, version: int, epoch: int) -> None:
        """Make the copy of this version whole, mark that it was opened, and delete all else that older epochs left."""
        with source.environment.reading() as txn:
            if source.opened_in(txn) == (epoch, version):
                return
        self.follow(source, version, epoch)
        with self._lock:
            with source.environment.reading() as txn:
                record = _checksum(_records(txn, source)[version])
            self.place.put(f"{self.prefix}/opened/{epoch:020}-{version:020}", b"")
            past = [
                name for name in self._all() if name.epoch < epoch and (name.version, name.record) != (version, record)
            ]
            named = self._drop(past, always=True)
            left = [name for name in self._names("chunks") if int(name.split("/")[1]) < epoch and name not in named]
            marks = [name for name in self._names("opened") if _mark_of(name)[0] < epoch]
            self._delete([*left, *marks])

    def _upload(
        self,
        source: Durable,
        record: Record,
        epoch: int,
        life: str,
        kept: Sequence[_ManifestName],
        bytes_max: int | None,
    ) -> dict[int, str] | None:
        """Upload the next chunks that the place lacks; return the names of all, or None if some are still missing."""
        if self._uploaded is None or self._uploaded_epoch != epoch:
            self._uploaded, self._uploaded_epoch = self._uploaded_in(epoch, life), epoch
        uploaded = self._uploaded
        there = {number: chunk for name in kept for number, chunk in self._manifest(name).chunks.items()} | uploaded
        refs = refs_of_states(record.traces.values())
        names, size, fresh = dict[int, str](), 0, list[int]()
        for number, nbytes in zip(refs[:, ID].tolist(), refs[:, NBYTES].tolist(), strict=True):
            if number in there:
                names[number] = there[number]
            elif bytes_max is None or not fresh or size + nbytes <= bytes_max:
                fresh.append(number)
                size += nbytes
            else:
                break

        def put(entry: tuple[int, Any]) -> tuple[int, str]:
            number, value = entry
            name = f"chunks/{epoch:020}/{life}-{number}-{_checksum(value)}"
            self.place.put(f"{self.prefix}/{name}", value)
            uploaded[number] = name
            return number, name

        with chunk_values(source, fresh) as values, ThreadPoolExecutor(AT_ONCE, "dbsp-copies") as pool:
            names |= pool.map(put, values)
        return names if len(names) == len(refs) else None

    def _uploaded_in(self, epoch: int, life: str) -> dict[int, str]:
        """Return the chunks of this database that were uploaded in an epoch, also by other processes."""
        names = self._names(f"chunks/{epoch:020}")
        parts = [(name, *name.rpartition("/")[2].split("-")) for name in names]
        return {int(number): name for name, of, number, _ in parts if of == life}

    def _put_manifest(self, name: _ManifestName, manifest: _Manifest) -> None:
        self.place.put(f"{self.prefix}/{name}", manifest.encoded())
        self._known[name] = manifest

    def _drop(self, past: Sequence[_ManifestName], *, always: bool = False) -> set[str]:
        """Delete manifests of the past that no checkpoint names, then the chunks that only they name; return all other chunks.

        Without a manifest to delete nothing is asked, and the result is empty, unless `always`.
        """
        if not past and not always:
            return set()
        rooted = frozenset() if self.checkpoints is None else self.checkpoints.states()
        past = [name for name in past if (name.version, name.epoch) not in rooted]
        if not past and not always:
            return set()
        named = {chunk for name in self._all() if name not in past for chunk in self._manifest(name).chunks.values()}
        gone = set[str]()
        for name in past:
            with suppress(DataError):  # another attempt has deleted it; what it names is left for the next `open`
                gone.update(self._manifest(name).chunks.values())
        self._delete(map(str, past))
        self._delete(gone - named)
        for name in past:
            self._known.pop(name, None)
        return named

    def close(self) -> None:
        """Forget what this process knows of the place."""
        self._known, self._uploaded, self._whole, self._goal = {}, None, None, None

    # ---- looking at the place

    def _manifest_names(self, epoch: int) -> list[_ManifestName]:
        """Return the names of the manifests that count, in the order in which they were made.

        **Errors** `FencedError` if a newer epoch has opened a version.
        """
        names = self._all()
        mark = max(map(_mark_of, self._names("opened")), default=(0, 0))
        if mark[0] > epoch:
            place = f"{self.place.address}/{self.prefix}"
            raise FencedError(f"a newer epoch owns these copies: epoch={epoch} newest={mark[0]} place={place}")
        return [name for name in names if name.epoch >= mark[0] or name.version <= mark[1]]

    def _manifest(self, name: _ManifestName) -> _Manifest:
        found = self._known.get(name)
        if found is None:
            full = f"{self.prefix}/{name}"
            where = f"place={self.place.address} name={full}"
            found = self._known[name] = _Manifest.decoded(self.place.get(full), where)
        return found

    def _names(self, below: str) -> list[str]:
        start = len(self.prefix) + 1
        return [name[start:] for name in self.place.names(f"{self.prefix}/{below}")]

    def _delete(self, names: Iterable[str]) -> None:
        self.place.delete([f"{self.prefix}/{name}" for name in names])

    # ---- deleting a worker's copies

    def condemn(self) -> tuple[str, ...]:
        """Return the manifests that are there now, to be deleted by `discard` with the worker's database."""
        return tuple(self._names("versions"))

    def discard(self, condemned: Sequence[str]) -> None:
        """Delete the condemned manifests, and the chunks that only they name; a repeat does nothing."""
        with self._lock:
            past = [_ManifestName.of(name) for name in condemned]
            there = self._all()
            self._drop([name for name in past if name in there])

    def collect(self) -> bool:
        """Delete all that no checkpoint names, for a worker that has left; return whether something is left.

        No process may be writing copies of this worker.
        """
        with self._lock:
            named = self._drop(self._all(), always=True)
            self._delete(name for name in self._names("chunks") if name not in named)
            return bool(named)

    # ---- making a database again

    def restore(self, home: Path, epoch: int, map_size_bytes: int) -> bool:
        """Create the database in `home` again from the newest two versions; return False if the place has no version.

        What is left of an old database stays next to the new one as `.lost-…`. A process that restores under an older epoch, and
        is stopped meanwhile, is ended first.

        **Errors** `DataError` if an object is missing or damaged; `AwayError` while the place does not answer.
        """
        names = self._manifest_names(epoch)
        if not names:
            return False
        newest = names[-1]
        before = [name for name in names if name.version == newest.version - 1 and name.epoch <= newest.epoch]
        if self._is_rewound(newest):
            before = []
        made = home.with_name(f"{home.name}.new-{uuid.uuid4().hex}")
        try:
            self._fill(made, [*before[-1:], newest], epoch, map_size_bytes)
            with _alone(home, epoch):
                put_in_place(made, home)
        finally:
            shutil.rmtree(made, ignore_errors=True)
        return True

    def damage(self, version: int, epoch: int) -> Iterator[str]:
        """Yield a text if the version is not whole here, by the epoch of its checkpoint.

        **Cost** reads all its chunks.
        """
        found = self._of(version, epoch)
        if not found:
            yield f"a manifest is missing: place={self.place.address}/{self.prefix} version={version}"
            return
        try:
            manifest = self._manifest(found[-1])
            for _ in self._downloaded(manifest, list(manifest.chunks), f"place={self.place.address} name={found[-1]}"):
                pass
        except DataError as error:
            yield error.message

    def epochs(self) -> Iterator[int]:
        """Yield the epochs under which something of this worker was put."""
        yield from (name.epoch for name in self._all())
        yield from (_mark_of(name)[0] for name in self._names("opened"))

    def rewind(self, version: int, epoch: int, made: int) -> None:
        """Let a version be the newest that counts, and refuse all owners older than epoch `made`; a repeat does nothing.

        **Errors** `DataError` if the place does not have the version.
        """
        found = self._of(version, epoch)
        if not found:
            where = f"place={self.place.address}/{self.prefix} version={version} epoch={epoch}"
            raise DataError(f"a version is not whole among the copies: {where}", "choose another one")
        again = replace(found[-1], epoch=made)
        self.place.put(f"{self.prefix}/{again}", self._manifest(found[-1]).encoded())
        self.place.put(f"{self.prefix}/opened/{made:020}-{version:020}", b"")

    def _all(self) -> list[_ManifestName]:
        """Return the names of all manifests, also of those that do not count."""
        return sorted(map(_ManifestName.of, self._names("versions")))

    def _of(self, version: int, epoch: int) -> list[_ManifestName]:
        """Return the manifests of a version, by the epoch of its checkpoint."""
        return [name for name in self._all() if name.version == version and name.epoch == epoch]

    def _is_rewound(self, name: _ManifestName) -> bool:
        """Return whether `rewind` put a manifest: the versions before it are of another history."""
        return decode_record(self._manifest(name).record, str(name)).checkpoint.epoch != name.epoch

    def _fill(self, made: Path, names: Sequence[_ManifestName], epoch: int, map_size_bytes: int) -> None:
        """Make a database of these versions, oldest first."""
        make_bare(made, epoch, map_size_bytes)
        target = Durable(made / DURABLE, made / WRITERS, map_size_bytes)
        try:
            values: Mapping[bytes, bytes | None] = {}
            for name in names:
                manifest = self._manifest(name)
                where = f"place={self.place.address} name={self.prefix}/{name}"
                record = decode_record(manifest.record, where)
                lacking, _ = target.lacking(refs_of_states(record.traces.values()), None)
                target.copy_in(epoch, self._downloaded(manifest, lacking, where))
                changes = {key: manifest.values.get(key) for key in {*values, *manifest.values}}
                changed = {key: value for key, value in changes.items() if values.get(key) != value}
                target.land(
                    Root(version=name.version, record=record, values=changed, keep=np.empty(0, np.uint64)), epoch
                )
                values = manifest.values
        finally:
            target.close()
        sync_path(made)

    def _downloaded(self, manifest: _Manifest, numbers: Sequence[int], where: str) -> Iterator[tuple[int, bytes]]:
        """Yield the values of chunks; raise `DataError` for one that is not what its name says."""

        def get(number: int) -> tuple[int, bytes]:
            name = manifest.chunks.get(number)
            if name is None:
                raise DataError(f"a manifest of the copies lacks a chunk: {where} chunk={number}")
            value = self.place.get(f"{self.prefix}/{name}")
            if not name.endswith(f"-{_checksum(value)}"):
                raise DataError(
                    f"a chunk of the copies is damaged: place={self.place.address} name={self.prefix}/{name}",
                    "restore the copies from elsewhere",
                )
            return number, value

        with ThreadPoolExecutor(AT_ONCE, "dbsp-copies") as pool:
            for first in range(0, len(numbers), 4 * AT_ONCE):
                yield from pool.map(get, numbers[first : first + 4 * AT_ONCE])


def _records(txn: Txn, source: Durable) -> dict[int, bytes]:
    """Return the encoded records of the versions that the database holds."""
    return {info.version: bytes(txn.get("versions", number_key(info.version)) or b"") for info in source.versions(txn)}


def _values(txn: Txn, source: Durable, version: int) -> dict[bytes, bytes]:
    """Return all small values of a version."""
    found = ((key, source.value(txn, version, key)) for key in source.value_keys(txn))
    return {key: value for key, value in found if value is not None}


def _is_past(name: _ManifestName, version: int, epoch: int) -> bool:
    """Return whether a manifest that the database does not hold may be deleted: no later attempt has made it."""
    return name.epoch < epoch or (name.epoch == epoch and name.version < version)


def _mark_of(name: str) -> tuple[int, int]:
    epoch, version = name.rpartition("/")[2].split("-")
    return int(epoch), int(version)


def _checksum(data: Any) -> str:
    return hashlib.sha256(data).hexdigest()[:_CHECKSUM_CHARS]


@contextmanager
def _alone(home: Path, epoch: int) -> Iterator[None]:
    """Let one process at a time put a database in place; end those of older epochs that are stopped in here."""
    writers = home.with_name(f".{home.name}.restoring")
    make_folder(writers)
    end_older(writers, epoch)
    with noted(writers, epoch), alone_in(writers):
        yield
