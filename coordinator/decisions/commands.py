"""The commands: what the machine tells the event loop to do. The values of `events` answer them.

Every command but `Wait` and `Shutdown` is answered by exactly one event: the one named in its docstring, or `Failed`.

`hosts` beside `workers` are where these live, one for each; nothing where no host is named.
"""

from __future__ import annotations

from dataclasses import dataclass

from dbsp.coordinator.decisions.engines import Acceptance
from dbsp.distribute.course import Course
from dbsp.layout import Layout
from dbsp.logs import StepRecord
from dbsp.store import CheckpointId


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimEpoch:
    """Own the step log and the ledger. → `Claimed`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateWorkers:
    """Make version 0 for workers that may have no database. → `Created`."""

    workers: tuple[int, ...]
    checkpoint: CheckpointId
    hosts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceWorkers:
    """Write the epoch into the databases of `workers`, and of those of `others` that can be reached. → `Fenced`."""

    epoch: int
    workers: tuple[int, ...]
    hosts: tuple[str, ...] = ()
    others: tuple[int, ...] = ()
    other_hosts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadVersions:
    """Ask every worker what it can open. → `VersionsRead`."""

    epoch: int
    workers: tuple[int, ...]
    hosts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenVersion:
    """Open the version on every worker of the layout; later steps are discarded. → `VersionOpened`."""

    version: int
    epoch: int
    layout: Layout
    checkpoint: CheckpointId


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscardWorkers:
    """Delete the databases of `workers`; `members` remain, `forming` of them without one. → `Discarded`.

    Those that cannot be reached remain too, unless `must` says that nothing goes on before they are gone.
    """

    workers: tuple[int, ...]
    members: tuple[int, ...]
    forming: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    must: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSteps:
    """Read the step log from `first` on. → `StepsRead`."""

    first: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CutStep:
    """Take what waits as step `step` and log it; with `commands` even if nothing waits. → `Recorded`."""

    epoch: int
    step: int
    layout_version: int
    commands: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStep:
    """Run a logged step; with `may_cut_ahead` the next one may be logged meanwhile. → `StepDone`.

    `following` is the step after it in a replay, logged long ago: its input may be read meanwhile. With `coming` it is a step of
    a migration from `layout`.
    """

    record: StepRecord
    layout: Layout
    epoch: int
    replay: bool
    may_cut_ahead: bool
    following: StepRecord | None = None
    coming: Layout | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PinVersion:
    """Pin the cut on every worker, then begin to copy it; `CopyEnded` is told when it has ended. → `VersionPinned`."""

    version: int
    checkpoint: CheckpointId
    layout: Layout


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitCopy:
    """Wait for the copy under way. → `Copied`."""

    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Publish:
    """Write the version into the ledger, then trim the logs. → `Published`."""

    version: int
    checkpoint: CheckpointId
    ends_rescale: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLayout:
    """Write the new layout into the ledger before it is used, and the course whose steps run in it. → `LayoutLogged`."""

    layout: Layout
    members: tuple[int, ...]
    forming: tuple[int, ...]
    course: Course | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RedistributeShards:
    """Slice the opened version, or the `cut` that is pinned now, into `version` of the new layout. → `Redistributed`.

    With a `course` the new layout is that of its steps, and no shard moves.
    """

    version: int
    checkpoint: CheckpointId
    old: Layout
    new: Layout
    cut: CheckpointId | None = None
    course: Course | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldMerges:
    """Let merges of the workers of `old` wait, so that what is copied for `new` is still there later. → `MergesHeld`."""

    old: Layout
    new: Layout


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmUp:
    """Begin to copy what the workers of `new` lack of `version`; `WarmEnded` is told at its end. → `WarmBegun`."""

    round: int
    version: int
    old: Layout
    new: Layout


@dataclass(frozen=True, slots=True, kw_only=True)
class EndWarmUp:
    """End the round under way; `workers` forget what was copied ahead for this layout. → `Cooled`."""

    layout_version: int
    workers: tuple[int, ...]
    hosts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetRescale:
    """Take the request to rescale out of the ledger. → `Forgotten`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptEngines:
    """Put into the ledger which steps of other versions of the engine this one may run again. → `EnginesAccepted`."""

    acceptances: tuple[Acceptance, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDecision:
    """Add the command to the record of a step that has not finished. → `Decided`."""

    epoch: int
    step: int
    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Until there is input for a step, or a request. → `Woken` or a request."""

    for_input: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BackOff:
    """Wait before trying again; longer with every failure in a row. → `Woken`.

    With `away` the failures are those of a system of others: the runtime is not made anew because of them.
    """

    failures: int
    away: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Shutdown:
    """Close everything and end with this error kind (None: success); `again`: to be started anew by another version."""

    code: str | None
    message: str
    hint: str | None = None
    again: bool = False


Command = (
    ClaimEpoch | CreateWorkers | FenceWorkers | ReadVersions | OpenVersion | DiscardWorkers | ReadSteps | CutStep
    | RunStep | PinVersion | AwaitCopy | Publish | LogLayout | RedistributeShards | HoldMerges | WarmUp | EndWarmUp
    | ForgetRescale
    | AcceptEngines | LogDecision | Wait | BackOff | Shutdown
)  # fmt: skip
