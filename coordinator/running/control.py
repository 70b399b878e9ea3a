"""The coordinator's durable ledger: what this pipeline is, its layouts, its checkpoints, what was asked of it.

One small LMDB environment (`<data_dir>/control`), one record per subject, each write one synced transaction that checks the
epoch (invariant 6). `MemoryLedger` is its twin for tests and the simulator; both pass the same contract tests.

Left out: step records and rows (they have their own logs), and anything that a worker's database knows better: recovery
asks the workers, the ledger only says where the input stood at a checkpoint and what a layout looks like.
"""

from __future__ import annotations

import json
import uuid
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from dbsp.coordinator.decisions import engines
from dbsp.coordinator.decisions.cutting import NOWHERE, Positions
from dbsp.coordinator.decisions.events import LedgerState
from dbsp.coordinator.decisions.fills import Fill
from dbsp.coordinator.decisions.recovery import destined
from dbsp.coordinator.strategies import COLD
from dbsp.distribute.course import Course
from dbsp.errors import DataError, FencedError
from dbsp.io.environment import open_environment, release_environment
from dbsp.layout import Layout
from dbsp.plan.signatures import Signatures
from dbsp.store import CheckpointId
from dbsp.stored import from_stored, to_stored
from dbsp.timing import Timing, timing_from_json, timing_to_json

FORM = "dbsp control 2"


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """A checkpoint as the ledger knows it: where the input and time stood; `published` once all acknowledged."""

    version: int
    checkpoint: CheckpointId
    positions: Positions
    timing: Timing
    wall_us: int
    published: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Deaths:
    """How many processes have ended in the midst of a step, since it was tried in a process of its own and lived."""

    step: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """Everything the ledger holds, as one value.

    `name` is the pipeline's, `input` and `output` are the kinds of its logs; "" where a version that did not note them made the
    ledger. `nodes` are the (label, token) pairs the fingerprint is made of, so that a refused circuit can name the node that
    differs; `signatures` tell what of the state another circuit can go on with. `members` may have a database, `forming` of them
    may have none yet. `fill` is the step that comes first after the circuit was changed; views `retired` were dropped by that.
    """

    run: str
    fingerprint: str
    nodes: tuple[tuple[str, str], ...]
    layouts: Mapping[int, Layout]
    members: frozenset[int]
    forming: frozenset[int]
    saved: Mapping[int, Saved] = field(default_factory=dict)
    epoch: int = 0
    rescale: int | None = None
    strategy: str = COLD
    courses: Mapping[int, Course] = field(default_factory=dict)
    accepted: tuple[engines.Acceptance, ...] = ()
    signatures: Signatures | None = None
    fill: Fill | None = None
    retired: frozenset[str] = frozenset()
    name: str = ""
    input: str = ""
    output: str = ""
    deaths: Deaths | None = None

    @property
    def published(self) -> int:
        """The greatest published version; 0 before the first."""
        return max((saved.version for saved in self.saved.values() if saved.published), default=0)

    def positions(self, checkpoint: CheckpointId) -> tuple[Positions, Timing]:
        """(input positions, timing) at a checkpoint that some worker holds; `DataError` if it was never intended."""
        if checkpoint.step == 0 and checkpoint.epoch == 0:
            return NOWHERE, Timing()
        for saved in self.saved.values():
            if saved.checkpoint == checkpoint:
                return saved.positions, saved.timing
        raise DataError(f"the workers hold a checkpoint that the ledger does not know: checkpoint={checkpoint}")

    def floor(self) -> Saved | None:
        """The oldest published checkpoint that a worker can still open: logs below it are not needed."""
        published = sorted((s for s in self.saved.values() if s.published), key=lambda saved: saved.version)
        return published[0] if published else None


def new_ledger(
    *,
    fingerprint: str,
    nodes: Iterable[tuple[str, str]],
    layout: Layout,
    run: str | None = None,
    signatures: Signatures | None = None,
    name: str = "",
    kinds: tuple[str, str] = ("", ""),
) -> Ledger:
    """The ledger of a pipeline that has not run yet; `kinds` are those of its input and its output."""
    workers = frozenset(layout.workers)
    return Ledger(
        run=run or uuid.uuid4().hex, fingerprint=fingerprint, nodes=tuple(nodes), layouts={layout.version: layout},
        members=workers, forming=workers, signatures=signatures, name=name, input=kinds[0], output=kinds[1],
    )  # fmt: skip


def standing(ledger: Ledger) -> LedgerState:
    """What the machine must know of it."""
    saved = ledger.saved.get(ledger.published)
    return LedgerState(
        layouts=ledger.layouts, courses=ledger.courses,
        used=saved.checkpoint.layout_version if saved is not None else min(ledger.layouts),
        members=ledger.members, forming=ledger.forming, published=ledger.published,
        rescale=ledger.rescale, strategy=ledger.strategy, accepted=ledger.accepted, fill=ledger.fill,
    )  # fmt: skip


class Control(Protocol):
    """Where the ledger is kept. Every change is durable on return."""

    def load(self) -> Ledger | None:
        """The ledger; None before `begin`."""
        ...

    def begin(self, ledger: Ledger) -> Ledger:
        """Write the first ledger, unless one is there; the one that is there then."""
        ...

    def change(self, epoch: int | None, action: Callable[[Ledger], Ledger]) -> Ledger:
        """Apply `action` in one transaction; `FencedError` if `epoch` is not None and older than the ledger's."""
        ...

    def close(self) -> None:
        """Release files."""
        ...


def refuse_older(ledger: Ledger, epoch: int) -> None:
    """`FencedError` for whoever is not the newest owner any more."""
    if epoch < ledger.epoch:
        raise FencedError(f"another coordinator owns this pipeline: epoch={epoch} newest={ledger.epoch}")


# --- changes --------------------------------------------------------------------------------------------------------


def raise_epoch(ledger: Ledger, epoch: int) -> Ledger:
    """Note a newer epoch."""
    return forget_layouts(replace(ledger, epoch=max(ledger.epoch, epoch)))


def forget_layouts(ledger: Ledger) -> Ledger:
    """Drop layouts and courses that nothing names any more, so that the ledger does not grow with every rescale.

    Kept are those from the oldest checkpoint's on, which steps logged since may name; the layouts of the courses kept; the newest
    of all, whose number the next one follows; the newest of each member, which says where it lives; and the first one as long as
    the empty version 0 may be opened.
    """
    versions = sorted(ledger.layouts)
    named = [saved.checkpoint.layout_version for saved in ledger.saved.values()]
    if not named and ledger.courses:
        return ledger
    least = min(named, default=versions[-1])
    courses = {number: course for number, course in ledger.courses.items() if number >= least}
    kept = {number for number in versions if number >= least} | {versions[-1]}
    kept |= {layout.version for course in courses.values() for layout in (course.old, course.new)}
    for worker in ledger.members:
        kept |= {max((n for n in versions if worker in ledger.layouts[n].workers), default=versions[-1])}
    if min(ledger.saved, default=0) <= 1:
        kept.add(versions[0])
    return replace(ledger, courses=courses, layouts={number: ledger.layouts[number] for number in sorted(kept)})


def intend(ledger: Ledger, saved: Saved) -> Ledger:
    """Note where the input stands at a checkpoint that the workers are about to commit."""
    return replace(ledger, saved={**ledger.saved, saved.version: saved})


def publish(ledger: Ledger, version: int, *, ends_rescale: bool) -> Ledger:
    """A version that all workers acknowledged; the one before it stays openable, older ones are not."""
    if version not in ledger.saved:
        raise DataError(f"a version was published that was never intended: version={version}")
    kept = {number: saved for number, saved in ledger.saved.items() if number == version - 1 and saved.published}
    saved = {**kept, version: replace(ledger.saved[version], published=True)}
    oldest = min(entry.checkpoint.step for entry in saved.values())
    fill = ledger.fill if ledger.fill is not None and ledger.fill.step >= oldest else None
    ledger = replace(ledger, accepted=engines.still_needed(ledger.accepted, oldest), fill=fill)
    layout = ledger.layouts.get(saved[version].checkpoint.layout_version)
    met = ends_rescale and layout is not None and ledger.rescale == destined(layout, ledger.courses)
    ledger = forget_layouts(replace(ledger, saved=saved))
    return request_rescale(ledger, None) if met else ledger


def opened(ledger: Ledger, version: int, layout: Layout) -> Ledger:
    """All workers opened `version`: no other one can be opened any more, this one is complete, and so is a rescale to it.

    They have databases, so nothing is left to settle where nobody leaves.
    """
    saved = {number: replace(s, published=True) for number, s in ledger.saved.items() if number == version}
    ledger = forget_layouts(replace(ledger, saved=saved, forming=ledger.forming - frozenset(layout.workers)))
    return request_rescale(ledger, None) if ledger.rescale == destined(layout, ledger.courses) else ledger


def log_layout(
    ledger: Ledger, layout: Layout, members: Iterable[int], forming: Iterable[int], course: Course | None = None
) -> Ledger:
    """Note a layout before it is used, and who may get a database by it; and the course whose steps run in it."""
    layouts = {**ledger.layouts, layout.version: layout}
    ledger = replace(ledger, layouts=layouts, members=frozenset(members), forming=frozenset(forming))
    if course is None:
        return ledger
    layouts = {**layouts, course.new.version: course.new}
    return replace(ledger, layouts=layouts, courses={**ledger.courses, course.version: course})


def doubt_members(ledger: Ledger, workers: Iterable[int]) -> Ledger:
    """These workers' databases are about to be deleted: from now on they may be there or not."""
    return replace(ledger, forming=ledger.forming | frozenset(workers))


def settle_members(ledger: Ledger, members: Iterable[int], forming: Iterable[int] = ()) -> Ledger:
    """These workers have databases, but those of `forming` have none."""
    return replace(ledger, members=frozenset(members), forming=frozenset(forming))


def request_rescale(ledger: Ledger, workers: int | None, strategy: str = COLD) -> Ledger:
    """Note, or take back, the request for another worker count."""
    return replace(ledger, rescale=workers, strategy=strategy)


def note_death(ledger: Ledger, step: int) -> Ledger:
    """Count a process that has ended in the midst of a step; of another step before nothing is kept."""
    before = ledger.deaths.count if ledger.deaths is not None and ledger.deaths.step == step else 0
    return replace(ledger, deaths=Deaths(step=step, count=before + 1))


def forget_deaths(ledger: Ledger) -> Ledger:
    """Note that the step was done, or lived where it was tried."""
    return replace(ledger, deaths=None)


def accept_engines(ledger: Ledger, acceptances: Iterable[engines.Acceptance]) -> Ledger:
    """Note whose steps may be run again by whom; a later acceptance of the same reaches further."""
    found = {(acceptance.engine, acceptance.by): acceptance for acceptance in (*ledger.accepted, *acceptances)}
    return replace(ledger, accepted=tuple(acceptance for _, acceptance in sorted(found.items())))


def change_circuit(
    ledger: Ledger, saved: Saved, *, nodes: Iterable[tuple[str, str]], signatures: Signatures, fill: Fill | None
) -> Ledger:
    """Every worker holds the state under another circuit: from now on that is the pipeline's."""
    before = frozenset() if ledger.signatures is None else frozenset(ledger.signatures.views)
    return replace(
        ledger, fingerprint=saved.checkpoint.fingerprint, nodes=tuple(nodes), signatures=signatures,
        saved={saved.version: saved}, fill=fill, retired=ledger.retired | (before - frozenset(signatures.views)),
    )  # fmt: skip


# --- keepers --------------------------------------------------------------------------------------------------------


class MemoryControl:
    """A ledger that lives as long as this object: what survives a simulated crash."""

    def __init__(self) -> None:
        """Empty."""
        self._ledger: Ledger | None = None

    def load(self) -> Ledger | None:
        """The ledger."""
        return self._ledger

    def begin(self, ledger: Ledger) -> Ledger:
        """Keep the first."""
        self._ledger = self._ledger or ledger
        return self._ledger

    def change(self, epoch: int | None, action: Callable[[Ledger], Ledger]) -> Ledger:
        """Apply and keep."""
        self._ledger = _changed(self._ledger, epoch, action)
        return self._ledger

    def close(self) -> None:
        """Nothing to release."""


class LmdbControl:
    """The ledger under `<data_dir>/control`."""

    def __init__(self, data_dir: Path, *, create: bool = True) -> None:
        """Open it; `create` makes an absent one, atomically."""
        self._env = open_environment(data_dir / "control", form=FORM, names=("ledger",), create=create)

    def load(self) -> Ledger | None:
        """The ledger; `DataError` if its checksum is wrong."""
        with self._env.read() as txn:
            return self._get(txn)

    def begin(self, ledger: Ledger) -> Ledger:
        """Write the first ledger."""

        def action(txn: Any) -> Ledger:
            found = self._get(txn)
            if found is None:
                self._put(txn, ledger)
            return found or ledger

        return self._env.write(action)

    def change(self, epoch: int | None, action: Callable[[Ledger], Ledger]) -> Ledger:
        """Read, apply, write in one transaction."""

        def transact(txn: Any) -> Ledger:
            found = self._get(txn)
            changed = _changed(found, epoch, action)
            if changed != found:
                self._put(txn, changed)
            return changed

        return self._env.write(transact)

    def close(self) -> None:
        """Release the file."""
        release_environment(self._env)

    def _get(self, txn: Any) -> Ledger | None:
        data = txn.get(b"ledger", db=self._env.db("ledger"))
        if data is None:
            return None
        data = bytes(data)
        if zlib.crc32(data[4:]) != int.from_bytes(data[:4], "little"):
            file = self._env.path / "data.mdb"
            raise DataError(f"the ledger's checksum is wrong: file={file}", "restore it from a backup")
        return decode_ledger(json.loads(data[4:]))

    def _put(self, txn: Any, ledger: Ledger) -> None:
        data = json.dumps(encode_ledger(ledger), separators=(",", ":"), sort_keys=True).encode()
        txn.put(b"ledger", zlib.crc32(data).to_bytes(4, "little") + data, db=self._env.db("ledger"))


def _changed(ledger: Ledger | None, epoch: int | None, action: Callable[[Ledger], Ledger]) -> Ledger:
    if ledger is None:
        raise DataError("the ledger is empty: the pipeline was never started")
    if epoch is not None:
        refuse_older(ledger, epoch)
    return action(ledger)


def encode_ledger(ledger: Ledger) -> dict[str, Any]:
    """The ledger as JSON values."""
    return {
        "run": ledger.run,
        "fingerprint": ledger.fingerprint,
        "epoch": ledger.epoch,
        "rescale": ledger.rescale,
        "strategy": ledger.strategy,
        "nodes": [list(pair) for pair in ledger.nodes],
        "members": sorted(ledger.members),
        "forming": sorted(ledger.forming),
        "layouts": [to_stored(layout) for _, layout in sorted(ledger.layouts.items())],
        "courses": [_encode_course(course) for _, course in sorted(ledger.courses.items())],
        "saved": [_encode_saved(saved) for _, saved in sorted(ledger.saved.items())],
        "accepted": [to_stored(acceptance) for acceptance in ledger.accepted],
        "signatures": None if ledger.signatures is None else ledger.signatures.to_json(),
        "fill": None if ledger.fill is None else to_stored(ledger.fill),
        "retired": sorted(ledger.retired),
        "name": ledger.name,
        "input": ledger.input,
        "output": ledger.output,
        "deaths": None if ledger.deaths is None else {"step": ledger.deaths.step, "count": ledger.deaths.count},
    }


def decode_ledger(found: Mapping[str, Any]) -> Ledger:
    """The ledger out of JSON values."""
    layouts = {layout.version: layout for layout in map(decode_layout, found["layouts"])}
    courses = [_decode_course(course, layouts) for course in found.get("courses", ())]
    saved = [_decode_saved(entry) for entry in found["saved"]]
    return Ledger(
        run=found["run"],
        fingerprint=found["fingerprint"],
        epoch=found["epoch"],
        rescale=found["rescale"],
        strategy=found.get("strategy", COLD),
        nodes=tuple((label, token) for label, token in found["nodes"]),
        members=frozenset(found["members"]),
        forming=frozenset(found["forming"]),
        layouts=layouts,
        courses={course.version: course for course in courses},
        saved={entry.version: entry for entry in saved},
        accepted=tuple(from_stored(engines.Acceptance, entry) for entry in found.get("accepted", ())),
        signatures=Signatures.from_json(found.get("signatures")),
        fill=None if found.get("fill") is None else from_stored(Fill, found["fill"]),
        retired=frozenset(found.get("retired", ())),
        name=found.get("name", ""),
        input=found.get("input", ""),
        output=found.get("output", ""),
        deaths=_decode_deaths(found.get("deaths")),
    )


def _decode_deaths(found: Mapping[str, Any] | None) -> Deaths | None:
    return None if found is None else Deaths(step=found["step"], count=found["count"])


def decode_layout(found: Mapping[str, Any]) -> Layout:
    """A layout out of JSON values."""
    return Layout(
        version=found["version"], owners=tuple(found["owners"]), workers=tuple(found["workers"]),
        hosts=tuple(found["hosts"]), first_steps=tuple(found["first_steps"]), dynamic_k=found["dynamic_k"],
        offered=tuple((host, weight) for host, weight in found.get("offered", ())),
    )  # fmt: skip


def _encode_course(course: Course) -> dict[str, Any]:
    """Its layouts by their versions: the ledger has them."""
    return {
        "strategy": course.strategy, "version": course.version, "old": course.old.version, "new": course.new.version,
        "first": course.first, "budget": course.budget, "turned": course.turned,
    }  # fmt: skip


def _decode_course(found: Mapping[str, Any], layouts: Mapping[int, Layout]) -> Course:
    return Course(
        strategy=found["strategy"], version=found["version"], old=layouts[found["old"]], new=layouts[found["new"]],
        first=found["first"], budget=found["budget"], turned=found["turned"],
    )  # fmt: skip


def _encode_saved(saved: Saved) -> dict[str, Any]:
    positions = [[table, partition, offset] for (table, partition), offset in sorted(saved.positions.items())]
    return {
        "version": saved.version, "checkpoint": to_stored(saved.checkpoint), "positions": positions,
        "timing": timing_to_json(saved.timing), "wall_us": saved.wall_us, "published": saved.published,
    }  # fmt: skip


def _decode_saved(found: Mapping[str, Any]) -> Saved:
    return Saved(
        version=found["version"], checkpoint=from_stored(CheckpointId, found["checkpoint"]),
        timing=timing_from_json(found["timing"]),
        positions={(table, partition): offset for table, partition, offset in found["positions"]},
        wall_us=found["wall_us"], published=found["published"],
    )  # fmt: skip
