"""The checkpoints of a whole pipeline among its copies: one object each, which keeps the workers' manifests of its version.

Objects, below the pipeline's name:

- `checkpoints/<made>-<version>-<epoch>-<second>`: a checkpoint that was published. The object was put in the epoch `made`, at
  the time `second`; `epoch` is that of the checkpoint
- `kept/<made>-<version>-<epoch>-<second>`: the same checkpoint, which only a command deletes

The coordinator defines the content of both: its ledger, and the data that a new input log needs.

Invariants:

1. The object of a version is put when every worker has put its manifest, and before the version is published. So a checkpoint
   that is listed was whole, and a version that was published is listed.
2. A worker deletes a manifest only after it saw no object of the manifest's version and epoch. So the deletion of the object
   is the record that the version may go, and comes first.
3. The newest object is never deleted by retention. An owner that finds an object of a newer epoch fails, and deletes
   nothing. So the retention of a late owner does no harm.
4. A command that keeps a version puts its own object first, and then checks that the old object still exists. In this
   case every worker that lists the objects sees one of the two.

Source: docs/design/0053-copied-checkpoints.md.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from dbsp.errors import DataError, FencedError
from dbsp.object_places import ObjectPlace
from dbsp.stored.format_numbers import check_format

FORMAT = 1
MADE, KEPT = "checkpoints", "kept"
REMEDY = "choose another one: `coordinator backups` lists them"


@dataclass(frozen=True, slots=True, order=True)
class CheckpointName:
    """The name of a checkpoint among the copies; the order is that in which the objects were made.

    >>> name = CheckpointName(made=2, version=7, epoch=1, second=1800000000)
    >>> CheckpointName.of(f"shop/checkpoints/{name}") == name
    True
    """

    made: int
    version: int
    epoch: int
    second: int

    @classmethod
    def of(cls, name: str) -> CheckpointName:
        """Return the name of an object."""
        made, version, epoch, second = name.rpartition("/")[2].split("-")
        return cls(int(made), int(version), int(epoch), int(second))

    def __str__(self) -> str:
        """Return the last part of the objects' names."""
        return f"{self.made:020}-{self.version:020}-{self.epoch:020}-{self.second}"

    @property
    def state(self) -> tuple[int, int]:
        """Return version and epoch, which name the workers' state."""
        return self.version, self.epoch


@dataclass(frozen=True, slots=True)
class CopiedCheckpoints:
    """The checkpoints of one pipeline in a place."""

    place: ObjectPlace
    pipeline: str

    @property
    def where(self) -> str:
        """Return the address, for messages."""
        return f"{self.place.address}/{self.pipeline}"

    def names(self) -> list[CheckpointName]:
        """Return the checkpoints that retention may delete, oldest first."""
        return self._listed(MADE)

    def kept(self) -> list[CheckpointName]:
        """Return the checkpoints that only a command deletes, oldest first."""
        return self._listed(KEPT)

    def states(self) -> frozenset[tuple[int, int]]:
        """Return version and epoch of every checkpoint, kept or not: manifests of these must stay."""
        return frozenset(name.state for name in (*self.names(), *self.kept()))

    def check_owner(self, epoch: int) -> list[CheckpointName]:
        """Return `names`; raise `FencedError` if a newer epoch has put a checkpoint."""
        names = self.names()
        newest = max((name.made for name in names), default=epoch)
        if newest > epoch:
            raise FencedError(f"a newer epoch owns these copies: epoch={epoch} newest={newest} place={self.where}")
        return names

    def put(self, name: CheckpointName, body: dict[str, Any], *, kept: bool = False) -> None:
        """Store a checkpoint; the manifests of all workers must exist before."""
        text = json.dumps({"format": FORMAT, **body}, sort_keys=True, separators=(",", ":"))
        self.place.put(self._full(name, kept), f"{_checksum(text)}\n{text}".encode())

    def get(self, name: CheckpointName, *, kept: bool = False) -> dict[str, Any]:
        """Return the body of a stored checkpoint; raise `DataError` if the object is absent or damaged."""
        full = self._full(name, kept)
        checksum, _, text = self.place.get(full).decode(errors="replace").partition("\n")
        where = f"place={self.place.address} name={full}"
        if checksum != _checksum(text):
            raise DataError(f"a checkpoint among the copies is damaged: {where}", REMEDY)
        body: dict[str, Any] = json.loads(text)
        check_format("a checkpoint among the copies", where, body["format"], FORMAT)
        return body

    def delete(self, names: Iterable[CheckpointName], *, kept: bool = False) -> None:
        """Delete checkpoints; with its next manifest, each worker deletes the objects that only these checkpoints kept."""
        self.place.delete([self._full(name, kept) for name in names])

    def _full(self, name: CheckpointName, kept: bool) -> str:
        return f"{self.pipeline}/{KEPT if kept else MADE}/{name}"

    def _listed(self, folder: str) -> list[CheckpointName]:
        return sorted(map(CheckpointName.of, self.place.names(f"{self.pipeline}/{folder}")))


def dismissed(
    names: Iterable[CheckpointName], *, newest: int, seconds: float, now_s: float
) -> tuple[CheckpointName, ...]:
    """Return the checkpoints that retention deletes: all except the `newest` ones and those younger than `seconds`.

    Each opening puts an object, so a state may have several objects. A state counts once, and only its newest object stays.

    >>> names = [CheckpointName(1, 7, 1, 100), CheckpointName(2, 7, 1, 105), CheckpointName(2, 8, 2, 110)]
    >>> [name.version for name in dismissed(names, newest=1, seconds=0, now_s=111)]
    [7, 7]
    >>> [(name.made, name.version) for name in dismissed(names, newest=1, seconds=60, now_s=111)]
    [(1, 7)]
    """
    ordered = sorted(names, reverse=True)
    heads = {name.state: name for name in reversed(ordered)}
    counted = sorted(heads.values(), reverse=True)[: max(1, newest)]
    stay = {*counted, *(name for name in heads.values() if now_s - name.second < seconds)}
    return tuple(name for name in reversed(ordered) if name not in stay)


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]
