"""The commands that the machine gives to the command runner; the values of `events` report their results.

Every command but `Wait` and `Shutdown` gets exactly one event as its result: the event that its docstring names, or
`Failed`. A field `hosts` next to `workers` names the host of each worker; it is empty where no host is configured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dbsp.coordinator.decisions.engines import Acceptance
from dbsp.distribute.migration_plan import MigrationPlan
from dbsp.layout import Layout
from dbsp.logs import StepRecord
from dbsp.store import CheckpointId, VersionInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimEpoch:
    """Claim the step log and the ledger under a new epoch. → `Claimed`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateWorkers:
    """Create version 0 for workers that may have no database. → `Created`.

    In a recovery `offered` are the hosts to which workers of lost hosts may move. → `HostsLost` | `DisksLost`.
    """

    workers: tuple[int, ...]
    checkpoint: CheckpointId
    hosts: tuple[str, ...] = ()
    offered: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceWorkers:
    """Write the epoch into the databases of `workers`, and of all reachable workers in `others`. → `Fenced`.

    `offered` are the hosts to which workers of lost hosts and disks may move. → `HostsLost` | `DisksLost`.
    """

    epoch: int
    workers: tuple[int, ...]
    hosts: tuple[str, ...] = ()
    others: tuple[int, ...] = ()
    other_hosts: tuple[str, ...] = ()
    offered: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveWorkers:
    """Note in the ledger that the workers of lost hosts and disks are on other hosts from epoch `epoch` on. → `WorkersMoved`.

    `places` are pairs of a worker and its new host. The workers `anew` begin again from version 0: nothing was published.
    A requested rescale that has named no hosts leaves out the hosts `excluded`, too.
    """

    epoch: int
    places: tuple[tuple[int, str], ...]
    anew: tuple[int, ...] = ()
    excluded: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadVersions:
    """Ask every worker which versions it can open. → `VersionsRead`."""

    epoch: int
    workers: tuple[int, ...]
    hosts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReturnToCopies:
    """Return all workers to the newest version that is whole among copies that lag. → `ReturnedToCopies` | `NothingCopied`.

    `held` are the versions that workers have; those of `lost` workers, on `hosts`, lack the published one.
    """

    epoch: int
    held: Mapping[int, tuple[VersionInfo, ...]]
    lost: tuple[int, ...]
    hosts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenVersion:
    """Open the version on every worker of the layout, and discard the state of later steps. → `VersionOpened`."""

    version: int
    epoch: int
    layout: Layout
    checkpoint: CheckpointId


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscardWorkers:
    """Delete the databases of `workers`; `members` remain, and `forming` of them have none yet. → `Discarded`.

    Workers that cannot be reached remain too. With `must`, the command fails instead, because their databases must be
    gone first.
    """

    workers: tuple[int, ...]
    members: tuple[int, ...]
    forming: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    must: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSteps:
    """Read the records of the step log from step `first` on. → `StepsRead`."""

    first: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CutStep:
    """Assign the waiting rows to step `step` and log its record; with `commands` even if no row waits. → `Recorded`."""

    epoch: int
    step: int
    layout_version: int
    commands: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStep:
    """Run a logged step; with `may_cut_ahead` the command runner may log the next step meanwhile. → `StepDone`.

    In a replay `following` is the logged step after this one; its input may be read ahead. In a migration `coming` is
    the layout to which the keys move, and `layout` the one they leave.
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
    """Pin the cut on every worker and begin to copy it; news `CopyEnded` follows when the copy ends. → `VersionPinned`."""

    version: int
    checkpoint: CheckpointId
    layout: Layout


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitCopy:
    """Wait until the copy that is under way ends. → `Copied`."""

    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Publish:
    """Write the version into the ledger, then trim the logs. → `Published`."""

    version: int
    checkpoint: CheckpointId
    ends_rescale: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLayout:
    """Write a new layout, and the migration plan whose steps run in it, into the ledger before its use. → `LayoutLogged`."""

    layout: Layout
    members: tuple[int, ...]
    forming: tuple[int, ...]
    migration_plan: MigrationPlan | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RedistributeShards:
    """Slice the opened version, or the `cut` that is pinned now, into `version` of the new layout. → `Redistributed`.

    With a `migration_plan` the new layout is the one of the plan's steps, and no shard moves yet.
    """

    version: int
    checkpoint: CheckpointId
    old: Layout
    new: Layout
    cut: CheckpointId | None = None
    migration_plan: MigrationPlan | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldMerges:
    """Suspend merges on the workers of `old`, so that chunks copied for `new` are still in use later. → `MergesHeld`."""

    old: Layout
    new: Layout


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmUp:
    """Begin to copy what the workers of `new` lack of `version`; news `WarmEnded` follows at the end. → `WarmBegun`."""

    round: int
    version: int
    old: Layout
    new: Layout


@dataclass(frozen=True, slots=True, kw_only=True)
class EndWarmUp:
    """End the round that is under way; `workers` drop everything that was copied ahead for this layout. → `Cooled`."""

    layout_version: int
    workers: tuple[int, ...]
    hosts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetRescale:
    """Remove the request to rescale from the ledger. → `Forgotten`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptEngines:
    """Note in the ledger which steps of other engine versions this version may replay. → `EnginesAccepted`."""

    acceptances: tuple[Acceptance, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDecision:
    """Add the command to the record of a step that has not finished. → `Decided`."""

    epoch: int
    step: int
    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Wait for a request, or with `for_input` for input too. → `Woken` or a request."""

    for_input: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BackOff:
    """Wait before the next try; the delay grows with the failures in a row. → `Woken`.

    With `away` an external system caused the failures: the runtime is not created anew because of them.
    """

    failures: int
    away: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Shutdown:
    """Close everything and end with this error kind (None: success); with `again` another engine version starts next."""

    code: str | None
    message: str
    hint: str | None = None
    again: bool = False


Command = (
    ClaimEpoch | CreateWorkers | FenceWorkers | MoveWorkers | ReadVersions | ReturnToCopies | OpenVersion | DiscardWorkers
    | ReadSteps | CutStep
    | RunStep | PinVersion | AwaitCopy | Publish | LogLayout | RedistributeShards | HoldMerges | WarmUp | EndWarmUp
    | ForgetRescale
    | AcceptEngines | LogDecision | Wait | BackOff | Shutdown
)  # fmt: skip
