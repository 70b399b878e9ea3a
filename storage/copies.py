"""Copies of a worker's versions as objects, in a place that survives the loss of every host of the pipeline.

Like a standby, a copy contains the durable side of a database, and is part of its commits. A version counts as committed
when the copy is whole too. So the place has each published version. A database that is lost with its host is restored from
the place, on any host.

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
   versions is never named again. So no version that counts depends on objects that a late task deletes or uploads.
4. Chunks of older epochs that no manifest names are deleted when a version is opened. Chunks of the epoch itself stay, because
   another attempt may be about to name them.
5. The place cannot compare epochs when it stores an object. So a late manifest does not count if the mark of a newer epoch
   is above it.
6. The manifest of a version that a checkpoint of the pipeline names stays, with its chunks (`copied_checkpoints`).
7. Two attempts may put the manifest of one version, each with the chunks that it uploaded in its own epoch. The first
   manifest stays. So the chunks that it names may not be deleted.

**Lagging copies** (`follow_behind`, with `copies_required = 0`) are no part of the commit. Such a copy is of a published
version that the database holds for the copy (`behind`). A version in the place counts only if a checkpoint of the pipeline
names it. New chunks are those that the newest such version of this database lacks. A place may lose or truncate objects. So
chunks are compared with a listing before the manifest is put, and the manifest is read back.

**Cost** the bytes of new chunks, and one manifest of some 100 bytes a chunk for each version.

Source: docs/design/0046-copies.md, docs/design/0055-copies-that-lag.md.
"""

from __future__ import annotations

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
from dbsp.errors import AwayError, DataError, FencedError, UnavailableError
from dbsp.object_places import ObjectPlace
from dbsp.processes import end_older, noted
from dbsp.storage.behind import HeldVersion, small_values
from dbsp.storage.chunkfile import HEADER_BYTES
from dbsp.storage.committing import chunk_values
from dbsp.storage.copied_checkpoints import CopiedCheckpoints
from dbsp.storage.copy_manifests import ManifestName, VersionManifest, checksum
from dbsp.storage.durable import Durable, Root, refs_of_states
from dbsp.storage.records import decode_record, number_key
from dbsp.storage.standby import DURABLE, WRITERS, make_bare, put_in_place
from dbsp.storage.tables import Txn
from dbsp.trace.manifest import ID, NBYTES, Refs

AT_ONCE = 8
"""Concurrent requests: an object store needs some 30 ms for each request, however small the object is."""


@dataclass(slots=True)
class WorkerCopies:
    """The copies of one worker's versions, below `prefix` in a place.

    **State** a cache of what is in the place, to save requests; the cache may be dropped at any time.
    """

    place: ObjectPlace
    prefix: str
    checkpoints: CopiedCheckpoints | None = None
    _known: dict[ManifestName, VersionManifest] = field(default_factory=dict)
    _uploaded: dict[int, str] | None = None
    _uploaded_epoch: int = -1
    _whole: ManifestName | None = None
    _goal: ManifestName | None = None
    _listed: list[ManifestName] = field(default_factory=list)
    _base: list[ManifestName] = field(default_factory=list)
    _begun: int = -1
    _broken: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    # ---- following the database

    def follow(self, source: Durable, version: int, epoch: int, bytes_max: int | None = None) -> bool:
        """Upload about `bytes_max` bytes of a version that the copy lacks (None: all); return whether the copy is whole now.

        **Errors** `FencedError` for an older epoch; `AwayError` while the place does not answer.
        """
        with self._lock:
            life = source.life(epoch)
            with source.environment.reading() as txn:
                source.check_epoch(txn, epoch)
                record, held = source.record(txn, version), _records(txn, source)
                values = small_values(txn, source, version)
            goal = ManifestName(record.checkpoint.epoch, version, life, checksum(held[version]))
            if self._whole == goal:
                return True

            def of_database(names: Sequence[ManifestName]) -> list[ManifestName]:
                return [name for name in names if name.version in held and name.record == checksum(held[name.version])]

            if self._goal != goal:
                self._goal, self._listed = goal, self._manifest_names(epoch)
            names = self._listed
            kept = of_database(names)
            if goal not in kept:
                refs = refs_of_states(record.traces.values())
                chunks, left = self._upload(source, refs, epoch, life, kept, bytes_max)
                if left:
                    return False
                names = self._manifest_names(
                    epoch
                )  # once more, because pieces may be minutes apart: a newer owner ends this
                kept = of_database(names)
                self._put_manifest(goal, VersionManifest(record=held[version], values=values, chunks=chunks))
                kept = [*kept, goal] if goal not in kept else kept
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
                record = checksum(_records(txn, source)[version])
            self.mark(version, epoch)
            past = [
                name for name in self._all() if name.epoch < epoch and (name.version, name.record) != (version, record)
            ]
            self._sweep(past, epoch)

    def _upload(
        self, source: Durable, refs: Refs, epoch: int, life: str, kept: Sequence[ManifestName], bytes_max: int | None
    ) -> tuple[dict[int, str], Mapping[int, int]]:
        """Upload the next missing chunks; return the names of the chunks in the place, and the bytes of each missing chunk."""
        if self._uploaded is None or self._uploaded_epoch != epoch:
            self._uploaded, self._uploaded_epoch = self._uploaded_in(epoch, life), epoch
        uploaded = self._uploaded
        of_versions = {number: chunk for name in kept for number, chunk in self._manifest(name).chunks.items()}
        there = {number: chunk for number, chunk in of_versions.items() if chunk not in self._broken} | uploaded
        names, size, fresh, left = dict[int, str](), 0, list[int](), dict[int, int]()
        for number, nbytes in zip(refs[:, ID].tolist(), refs[:, NBYTES].tolist(), strict=True):
            if number in there:
                names[number] = there[number]
            elif not left and (bytes_max is None or not fresh or size + nbytes <= bytes_max):
                fresh.append(number)
                size += nbytes
            else:
                left[number] = nbytes

        def put(entry: tuple[int, Any]) -> tuple[int, str]:
            number, value = entry
            name = f"chunks/{epoch:020}/{life}-{number}-{checksum(value)}"
            self.place.put(f"{self.prefix}/{name}", value)
            uploaded[number] = name
            return number, name

        with chunk_values(source, fresh) as values, ThreadPoolExecutor(AT_ONCE, "dbsp-copies") as pool:
            names |= pool.map(put, values)
        return names, left

    def _uploaded_in(self, epoch: int, life: str) -> dict[int, str]:
        """Return the chunks of this database that were uploaded in an epoch, also by other processes."""
        names = self._names(f"chunks/{epoch:020}")
        parts = [(name, *name.rpartition("/")[2].split("-")) for name in names]
        return {int(number): name for name, of, number, _ in parts if of == life}

    def _put_manifest(self, name: ManifestName, manifest: VersionManifest) -> None:
        """Put a manifest, and forget the cached one: another attempt's manifest may be in the place (invariant 7)."""
        self.place.put(f"{self.prefix}/{name}", manifest.encoded())
        self._known.pop(name, None)

    def _drop(self, past: Sequence[ManifestName], *, always: bool = False) -> set[str]:
        """Delete the manifests `past` that no checkpoint names, and the chunks that only they name; return all other chunks.

        If there is no manifest to delete, send no request and return an empty set, unless `always`.
        """
        if not past and not always:
            return set()
        rooted = self._rooted()
        past = [name for name in past if (name.version, name.epoch) not in rooted]
        if not past and not always:
            return set()
        named = {chunk for name in self._all() if name not in past for chunk in self._manifest(name).chunks.values()}
        gone = set[str]()
        for name in past:
            with suppress(DataError):  # another attempt has deleted the manifest; the next `open` deletes its chunks
                gone.update(self._manifest(name).chunks.values())
        self._delete(map(str, past))
        self._delete(gone - named)
        for name in past:
            self._known.pop(name, None)
        return named

    def close(self) -> None:
        """Drop the cache of what is in the place."""
        self._known, self._uploaded, self._whole, self._goal, self._begun = {}, None, None, None, -1

    # ---- behind the checkpoints

    def follow_behind(self, source: Durable, held: HeldVersion, epoch: int, bytes_max: int | None = None) -> int:
        """Upload about `bytes_max` bytes of a held version (None: all); return the bytes that are missing, 0 if it is whole.

        **Errors**

        - `FencedError` for an older epoch
        - `AwayError` while the place does not answer, or if it has lost or truncated an object, which the next call puts again
        - `UnavailableError` if the database has deleted chunks of the version
        """
        with self._lock:
            life = source.life(epoch)
            goal = ManifestName(held.checkpoint.epoch, held.version, life, checksum(held.data))
            if self._whole == goal:
                return 0
            if self._goal != goal:
                self._begin(source, epoch)
                self._listed, self._goal = self._manifest_names(epoch), goal
                self._base = self._based_on(goal, source)
            if goal not in self._listed or not self._is_readable(goal):
                refs = refs_of_states(held.record.traces.values())
                with source.environment.reading() as txn:
                    source.check_epoch(txn, epoch)
                    if lost := [number for number in refs[:, ID].tolist() if not source.has_chunk(txn, number)]:
                        story = f"version={held.version} chunks={len(lost)} folder={source.folder}"
                        raise UnavailableError(f"the version was dropped before it was copied: {story}")
                chunks, left = self._upload(source, refs, epoch, life, self._base, bytes_max)
                if left:
                    return max(1, sum(left.values()))
                self._compare(refs, chunks, epoch)
                self._manifest_names(epoch)  # a newer owner ends this
                self._put_manifest(goal, VersionManifest(record=held.data, values=held.values, chunks=chunks))
                if not self._is_readable(goal):
                    raise AwayError(f"the place for copies has lost or cut an object: {self._where(goal)}")
            past = [name for name in self._listed if name != goal and _is_past(name, held.version, epoch)]
            self._drop(past)
            self._whole, self._uploaded = goal, {}
            return 0

    def _begin(self, source: Durable, epoch: int) -> None:
        """Mark the opened version once in an epoch, and delete what older epochs left and no checkpoint names."""
        if self._begun == epoch:
            return
        with source.environment.reading() as txn:
            source.check_epoch(txn, epoch)
            opened = source.opened_in(txn)
        if opened is None or opened[0] != epoch:
            raise UnavailableError(f"no version was opened in this epoch: epoch={epoch} folder={source.folder}")
        self._manifest_names(epoch)  # a newer owner ends this
        self.mark(opened[1], epoch)
        for name in self._all():
            self._is_readable(name)
        # Keep the opened version: another attempt in this epoch has put it, and a checkpoint may be about to name it.
        self._sweep([name for name in self._all() if name.epoch < epoch and name.version != opened[1]], epoch)
        self._begun = epoch

    def _sweep(self, past: Sequence[ManifestName], epoch: int) -> None:
        """Delete these manifests, the chunks of older epochs that no other manifest names, and the marks of older epochs."""
        named = self._drop(past, always=True)
        left = [name for name in self._names("chunks") if int(name.split("/")[1]) < epoch and name not in named]
        marks = [name for name in self._names("opened") if _mark_of(name)[0] < epoch]
        self._delete([*left, *marks])

    def _based_on(self, goal: ManifestName, source: Durable) -> list[ManifestName]:
        """Return the newest version of this database that a checkpoint names; its chunks are in the place, and stay."""
        with source.environment.reading() as txn:
            own = {goal.record, *map(checksum, _records(txn, source).values())}
        rooted = self._rooted()
        return [
            name
            for name in self._listed
            if (name.version, name.epoch) in rooted
            and name.version <= goal.version
            and (name.life == goal.life or name.record in own)
        ][-1:]

    def _compare(self, refs: Refs, chunks: Mapping[int, str], epoch: int) -> None:
        """Compare the chunks that were put in this epoch with a listing; raise `AwayError` if any is lost or truncated."""
        below = f"chunks/{epoch:020}"
        sizes = self.place.sizes(f"{self.prefix}/{below}")
        wrong = [
            number
            for number, nbytes in zip(refs[:, ID].tolist(), refs[:, NBYTES].tolist(), strict=True)
            if chunks[number].startswith(f"{below}/")
            and sizes.get(f"{self.prefix}/{chunks[number]}") != nbytes + HEADER_BYTES
        ]
        if wrong:
            self._delete(chunks[number] for number in wrong)
            self._broken.update(chunks[number] for number in wrong)
            for number in wrong:
                (self._uploaded or {}).pop(number, None)
            raise AwayError(f"the place for copies has lost or cut objects: {self._where(chunks[wrong[0]])}")

    def _is_readable(self, name: ManifestName) -> bool:
        """Return whether a manifest is whole in the place; delete a damaged manifest."""
        self._known.pop(name, None)
        try:
            self._manifest(name)
        except DataError:
            self._delete([str(name)])
            return False
        return True

    def mark(self, version: int, epoch: int) -> None:
        """Mark that a version was opened in an epoch.

        Later versions of older epochs do not count any more, and owners of older epochs fail.
        """
        self.place.put(f"{self.prefix}/opened/{epoch:020}-{version:020}", b"")

    def lacks(self, version: int, epoch: int) -> str | None:
        """Return a text that names what is missing of the version with a checkpoint of this epoch; None if it is whole.

        **Cost** reads its manifest, and lists its chunks with their sizes.
        """
        name = self._of_state(version, epoch)
        if name is None:
            return f"a manifest is missing: place={self.place.address}/{self.prefix} version={version}"
        manifest = self._manifest(name)
        sizes = self.place.sizes(f"{self.prefix}/chunks")
        refs = refs_of_states(decode_record(manifest.record, str(name)).traces.values())
        for number, nbytes in zip(refs[:, ID].tolist(), refs[:, NBYTES].tolist(), strict=True):
            chunk = manifest.chunks.get(number, "")
            if sizes.get(f"{self.prefix}/{chunk}") != nbytes + HEADER_BYTES:
                return f"a chunk is missing or cut: {self._where(chunk or name)}"
        return None

    def _of_state(self, version: int, epoch: int) -> ManifestName | None:
        """Return the newest whole manifest of the version with a checkpoint of this epoch; None if there is none."""
        for name in reversed(self._of(version, epoch)):
            with suppress(DataError):
                self._manifest(name)
                return name
        return None

    def restore_named(self, home: Path, epoch: int, map_size_bytes: int) -> bool:
        """Restore the database in `home` from the pipeline's newest checkpoint here; return False if it is not whole.

        A damaged checkpoint is skipped, because an older checkpoint may be whole.

        **Errors** `AwayError` while the place does not answer, `FencedError` if a newer epoch has opened a version.
        """
        try:
            names = [] if self.checkpoints is None else self.checkpoints.names()
            self._manifest_names(epoch)  # a newer owner ends this
            name = self._of_state(*names[-1].state) if names else None
            if name is None:
                return False
            self._make_again(home, epoch, map_size_bytes, [name])
        except DataError:
            return False
        return True

    # ---- looking at the place

    def _manifest_names(self, epoch: int) -> list[ManifestName]:
        """Return the names of the manifests that count, in the order in which they were made.

        **Errors** `FencedError` if a newer epoch has opened a version.
        """
        names = self._all()
        mark = max(map(_mark_of, self._names("opened")), default=(0, 0))
        if mark[0] > epoch:
            place = f"{self.place.address}/{self.prefix}"
            raise FencedError(f"a newer epoch owns these copies: epoch={epoch} newest={mark[0]} place={place}")
        return [name for name in names if name.epoch >= mark[0] or name.version <= mark[1]]

    def _rooted(self) -> frozenset[tuple[int, int]]:
        """Return version and epoch of every manifest that a checkpoint of the pipeline keeps."""
        return frozenset() if self.checkpoints is None else self.checkpoints.states()

    def _manifest(self, name: ManifestName) -> VersionManifest:
        found = self._known.get(name)
        if found is None:
            found = self._known[name] = VersionManifest.decoded(
                self.place.get(f"{self.prefix}/{name}"), self._where(name)
            )
        return found

    def _where(self, name: ManifestName | str) -> str:
        """Return the words with which errors name an object."""
        return f"place={self.place.address} name={self.prefix}/{name}"

    def _names(self, below: str) -> list[str]:
        start = len(self.prefix) + 1
        return [name[start:] for name in self.place.names(f"{self.prefix}/{below}")]

    def _delete(self, names: Iterable[str]) -> None:
        self.place.delete([f"{self.prefix}/{name}" for name in names])

    # ---- deleting a worker's copies

    def condemn(self) -> tuple[str, ...]:
        """Return the manifests that exist now, which `discard` is to delete together with the worker's database."""
        return tuple(self._names("versions"))

    def discard(self, condemned: Sequence[str]) -> None:
        """Delete the condemned manifests, and the chunks that only they name; a repeat does nothing."""
        with self._lock:
            past = [ManifestName.of(name) for name in condemned]
            there = self._all()
            self._drop([name for name in past if name in there])

    def collect(self) -> bool:
        """Delete all objects that no checkpoint names, for a worker that has left; return whether objects remain.

        No process may be writing copies of this worker.
        """
        with self._lock:
            named = self._drop(self._all(), always=True)
            self._delete(name for name in self._names("chunks") if name not in named)
            return bool(named)

    # ---- making a database again

    def restore(self, home: Path, epoch: int, map_size_bytes: int) -> bool:
        """Restore the database in `home` from the newest two versions; return False if the place has no version.

        The remains of an old database stay next to the new one as `.lost-…`. A stopped process that restores under an older
        epoch is ended first.

        **Errors** `DataError` if an object is missing or damaged; `AwayError` while the place does not answer.
        """
        names = self._manifest_names(epoch)
        if not names:
            return False
        newest = names[-1]
        before = [name for name in names if name.version == newest.version - 1 and name.epoch <= newest.epoch]
        if self._is_rewound(newest):
            before = []
        self._make_again(home, epoch, map_size_bytes, [*before[-1:], newest])
        return True

    def _make_again(self, home: Path, epoch: int, map_size_bytes: int, names: Sequence[ManifestName]) -> None:
        """Make a database of these versions, oldest first, and put it in place."""
        made = home.with_name(f"{home.name}.new-{uuid.uuid4().hex}")
        try:
            self._fill(made, names, epoch, map_size_bytes)
            with _alone(home, epoch):
                put_in_place(made, home)
        finally:
            shutil.rmtree(made, ignore_errors=True)

    def damage(self, version: int, epoch: int) -> Iterator[str]:
        """Yield a text for each damage if the version with a checkpoint of this epoch is not whole here.

        **Cost** reads all its chunks.
        """
        found = self._of(version, epoch)
        if not found:
            yield f"a manifest is missing: place={self.place.address}/{self.prefix} version={version}"
            return
        try:
            manifest = self._manifest(found[-1])
            for _ in self._downloaded(manifest, list(manifest.chunks), self._where(found[-1])):
                pass
        except DataError as error:
            yield error.message

    def epochs(self) -> Iterator[int]:
        """Yield the epochs of all manifests and marks of this worker."""
        yield from (name.epoch for name in self._all())
        yield from (_mark_of(name)[0] for name in self._names("opened"))

    def rewind(self, version: int, epoch: int, made: int) -> None:
        """Make a version the newest that counts, and refuse all owners older than epoch `made`; a repeat does nothing.

        **Errors** `DataError` if the place does not have the version.
        """
        found = self._of(version, epoch)
        if not found:
            where = f"place={self.place.address}/{self.prefix} version={version} epoch={epoch}"
            raise DataError(f"a version is not whole among the copies: {where}", "choose another one")
        again = replace(found[-1], epoch=made)
        self.place.put(f"{self.prefix}/{again}", self._manifest(found[-1]).encoded())
        self.place.put(f"{self.prefix}/opened/{made:020}-{version:020}", b"")

    def _all(self) -> list[ManifestName]:
        """Return the names of all manifests, also of those that do not count."""
        return sorted(map(ManifestName.of, self._names("versions")))

    def _of(self, version: int, epoch: int) -> list[ManifestName]:
        """Return the manifests of the version with a checkpoint of this epoch, in the order in which they were made."""
        return [name for name in self._all() if name.version == version and name.epoch == epoch]

    def _is_rewound(self, name: ManifestName) -> bool:
        """Return whether `rewind` put a manifest, so that the versions before it belong to another history."""
        return decode_record(self._manifest(name).record, str(name)).checkpoint.epoch != name.epoch

    def _fill(self, made: Path, names: Sequence[ManifestName], epoch: int, map_size_bytes: int) -> None:
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

    def _downloaded(self, manifest: VersionManifest, numbers: Sequence[int], where: str) -> Iterator[tuple[int, bytes]]:
        """Yield the values of chunks; raise `DataError` for a chunk that does not have the checksum in its name."""

        def get(number: int) -> tuple[int, bytes]:
            name = manifest.chunks.get(number)
            if name is None:
                raise DataError(f"a manifest of the copies lacks a chunk: {where} chunk={number}")
            value = self.place.get(f"{self.prefix}/{name}")
            if not name.endswith(f"-{checksum(value)}"):
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


def _is_past(name: ManifestName, version: int, epoch: int) -> bool:
    """Return whether a manifest that the database does not hold may be deleted: no later attempt has made it."""
    return name.epoch < epoch or (name.epoch == epoch and name.version < version)


def _mark_of(name: str) -> tuple[int, int]:
    epoch, version = name.rpartition("/")[2].split("-")
    return int(epoch), int(version)


@contextmanager
def _alone(home: Path, epoch: int) -> Iterator[None]:
    """Let one process at a time put a database in place; end processes of older epochs that are stopped in the block."""
    writers = home.with_name(f".{home.name}.restoring")
    make_folder(writers)
    end_older(writers, epoch)
    with noted(writers, epoch), alone_in(writers):
        yield
