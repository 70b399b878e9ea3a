"""Layouts and planned rescales as values for the command line and HTTP, and the check that workers have hosts.

Bytes are those of the workers' states as of the last step. The bytes of one shard are not known, so each shard counts as an
equal share of its worker's bytes. The predicted pause is derived from the last cold rescale, else from the last checkpoint,
else from an assumption; `pause_from` says which.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dbsp.coordinator.running.notices import (
    CheckpointPublished,
    CommandFailed,
    MigrationBegun,
    Notice,
    RescaleMoved,
    StateChanged,
)
from dbsp.coordinator.running.unusable_hosts import UnusableHost
from dbsp.coordinator.settings.config import Config
from dbsp.distribute.migration_plan import MigrationPlan
from dbsp.errors import ConfigError
from dbsp.layout import Layout, is_change, least_moved, moved_partitions, moves, rescaled
from dbsp.logs import StepRecord
from dbsp.runtime.runtime import StepReport

ASSUMED_BYTES_PER_S = 100e6
ASSUMED_FIXED_S = 0.5
TOLD_BY_BYTES_MIN = 16 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedWorker:
    """A worker and its host; the host is "" where hosts have no names."""

    worker: int
    host: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedPartition:
    """An input partition that another worker reads after a rescale."""

    table: str
    partition: int
    worker_before: int
    worker: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RescalePlan:
    """The effects of a rescale: shards that move, out of all, and the least that must; bytes of state; the pause of the steps.

    `bytes_moved` and `bytes_total` are None before a step has reported the size of the state. On the hosts in
    `hosts_joining` and `hosts_leaving` is no worker before, and after. `partitions_moved` are the input partitions that
    another worker reads then. `hosts_excluded` are hosts on offer that get no worker.
    """

    workers: int
    workers_before: int
    shards: int
    shards_moved: int
    least: float
    bytes_moved: int | None
    bytes_total: int | None
    pause_seconds: float | None
    pause_from: str
    joining: tuple[PlacedWorker, ...] = ()
    leaving: tuple[PlacedWorker, ...] = ()
    hosts_joining: tuple[str, ...] = ()
    hosts_leaving: tuple[str, ...] = ()
    partitions_moved: tuple[MovedPartition, ...] = ()
    hosts_excluded: tuple[UnusableHost, ...] = ()

    @property
    def changes(self) -> bool:
        """Return whether the layout is another one afterwards."""
        return bool(self.shards_moved or self.joining or self.leaving or self.partitions_moved)

    @property
    def share(self) -> float:
        """Return the part of the shards that moves, between 0 and 1."""
        return self.shards_moved / self.shards


class StateRates:
    """An observer of the service that measures how fast state is written and moved. Other threads may read it safely."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        """Start without measurements."""
        self._now_s = now_s
        self._moving_since: float | None = None
        self._moved: int | None = None
        self._checkpoint: tuple[float, int] | None = None
        self._rescale: tuple[float, int] | None = None

    def stepped(self, record: StepRecord, report: StepReport, *, replay: bool, lag_rows: int) -> None:  # noqa: ARG002
        """End the pause of a rescale at the first new step after it."""
        if self._moving_since is not None and self._moved is not None and not replay:
            self._end()

    def noted(self, notice: Notice) -> None:
        """Measure checkpoints and cold rescales; steps stop for no other rescale while all state moves."""
        match notice:
            case CheckpointPublished(seconds=seconds, bytes_written=written):
                self._checkpoint = (seconds, written)
            case StateChanged(state="Rescaling"):
                self._moving_since, self._moved = self._now_s(), None
            case RescaleMoved(bytes_moved=moved, bytes_ahead=0):
                self._moved = moved
            case StateChanged(state="Running") if self._moving_since is not None and self._moved is not None:
                self._end()
            case CommandFailed() | MigrationBegun():
                self._moving_since = None

    def _end(self) -> None:
        if self._moving_since is not None and self._moved is not None:
            self._rescale = (self._now_s() - self._moving_since, self._moved)
        self._moving_since = self._moved = None

    def pause(self, moved: int, total: int) -> tuple[float, str]:
        """Return the predicted seconds to move `moved` of `total` bytes, and the source of the prediction.

        From a checkpoint, the seconds are its own time and that of the move.
        """
        if self._rescale is not None:
            seconds, before = self._rescale
            return seconds + _writing_s(max(0, moved - before), seconds, before), "the last cold rescale"
        if self._checkpoint is not None and self._checkpoint[1] > 0:
            seconds, written = self._checkpoint
            return seconds + _writing_s(moved, seconds, written), "the last checkpoint (an estimate)"
        return ASSUMED_FIXED_S + (
            moved + total
        ) / ASSUMED_BYTES_PER_S, "100 MB/s (an assumption: nothing was measured yet)"


def _writing_s(count: int, seconds: float, written: int) -> float:
    """Return the seconds to write `count` bytes, at the rate of `written` bytes in `seconds`.

    The time for few bytes is mostly that of the syncs, so then the rate is assumed.
    """
    return count * seconds / written if written >= TOLD_BY_BYTES_MIN else count / ASSUMED_BYTES_PER_S


def plan_rescale(
    layout: Layout,
    workers: int,
    *,
    step: int,
    state_bytes: Mapping[int, int],
    rates: StateRates,
    partitions: Mapping[str, Sequence[int]] | None = None,
) -> RescalePlan:
    """Return the effects of a rescale of this layout to `workers`; `ConfigError` if there cannot be so many.

    `partitions` has per table the recent rows of each input partition; with None those of the layout count the same.
    """
    new = rescaled(layout, workers, step=step, partitions=partitions)
    new = new if is_change(layout, new, partitions) else layout
    shards = max(layout.shards, new.shards)
    pairs = moves(layout, new)
    moved = total = seconds = None
    origin = "nothing: no step has told how large the state is"
    if state_bytes:
        owned = {worker: count * (shards // layout.shards) for worker, count in layout.shard_counts().items()}
        shares = (
            state_bytes.get(source_worker, 0) * count / owned[source_worker]
            for (source_worker, _), count in pairs.items()
        )
        moved, total = round(sum(shares)), sum(state_bytes.values())
        seconds, origin = rates.pause(moved, total)
    return RescalePlan(
        workers=workers, workers_before=len(layout.workers), shards=shards, shards_moved=sum(pairs.values()),
        least=least_moved(layout, new), bytes_moved=moved, bytes_total=total, pause_seconds=seconds, pause_from=origin,
        joining=_only_in(new, layout), leaving=_only_in(layout, new),
        hosts_joining=_hosts_only_in(new, layout), hosts_leaving=_hosts_only_in(layout, new),
        partitions_moved=partitions_between(layout, new),
    )  # fmt: skip


def partitions_between(old: Layout, new: Layout) -> tuple[MovedPartition, ...]:
    """Return the input partitions that the second layout lists and another worker reads than in the first."""
    return tuple(
        MovedPartition(table=table, partition=partition, worker_before=before, worker=worker)
        for table, partition, before, worker in moved_partitions(old, new)
    )


def _only_in(one: Layout, other: Layout) -> tuple[PlacedWorker, ...]:
    """Return the workers of a layout that the other one does not have."""
    pairs = zip(one.workers, one.hosts, strict=True)
    return tuple(PlacedWorker(worker=worker, host=host) for worker, host in pairs if worker not in other.workers)


def _hosts_only_in(one: Layout, other: Layout) -> tuple[str, ...]:
    """Return the hosts of a layout on which the other one has no worker."""
    return tuple(sorted({*one.hosts} - {*other.hosts} - {""}))


def shares_disk(config: Config) -> bool:
    """Return whether all workers reach the same `data_dir`."""
    return config.pipeline.runtime == "local" or config.spark.master.startswith("local") or config.layout.common_disk


def check_named(config: Config, layouts: Iterable[Layout] = ()) -> None:
    """Check that every worker has a named host where Spark may run tasks on several.

    A worker's database is on its host's disk, so each database must have a known host.

    **Errors** `ConfigError` with the setting to add.
    """
    if config.autoscale.hosts_command and not config.layout.hosts:
        raise ConfigError(
            f"a command gives hosts to autoscale, and no host is named: autoscale.hosts_command={config.autoscale.hosts_command}",
            'name the hosts to begin with in [layout]: hosts = ["10.0.0.1"]',
        )
    if config.layout.standbys_per_worker and config.checkpoint.copies_lag:
        raise ConfigError(
            "standbys on other hosts do not go together with copies that lag:"
            f" layout.standbys_per_worker={config.layout.standbys_per_worker} checkpoint.copies_required=0",
            "set `copies_required = 1`, or remove `standbys_per_worker`",
        )
    if shares_disk(config):
        if config.layout.standbys_per_worker:
            raise ConfigError(
                "a standby on another host would be on the same disk: the workers of this pipeline share one:"
                f" layout.standbys_per_worker={config.layout.standbys_per_worker} data_dir={config.data_dir}",
                "remove `standbys_per_worker`; `standbys` in [layout] are folders on other disks",
            )
        return
    homeless = sorted({w for each in layouts for w, host in zip(each.workers, each.hosts, strict=True) if not host})
    if homeless:
        raise ConfigError(
            f"these workers were made without a host: workers={homeless} data_dir={config.data_dir}",
            "their state is on a disk that all hosts reach: set `common_disk = true` in [layout]",
        )
    if not config.layout.hosts:
        raise ConfigError(
            "each worker's state is on the disk of a host, and no host is named:"
            f" spark.master={config.spark.master} data_dir={config.data_dir}",
            'name the hosts of Spark\'s executors in [layout]: hosts = ["10.0.0.1", "10.0.0.2"]',
        )


def layout_as_json(
    layout: Layout,
    partitions: Mapping[str, int],
    state_bytes: Mapping[int, int],
    migration_plan: MigrationPlan | None = None,
) -> dict[str, Any]:
    """Return the layout as JSON values, with a row for every worker, and the migration plan while keys move."""
    counts = layout.shard_counts()
    rows = [
        {
            "worker": worker, "host": host, "shards": counts[worker], "first_step": first,
            "ranges": [[f"{low:016x}", f"{high - 1:016x}"] for low, high in layout.ranges_of(worker)],
            "partitions": {table: layout.partitions_of(worker, table, count) for table, count in sorted(partitions.items())},
            "state_bytes": state_bytes.get(worker),
        }
        for worker, host, first in zip(layout.workers, layout.hosts, layout.first_steps, strict=True)
    ]  # fmt: skip
    moving = None if migration_plan is None else {
        "strategy": migration_plan.strategy, "workers_before": list(migration_plan.old.workers),
        "workers": list(migration_plan.new.workers),
    }  # fmt: skip
    shown = {
        name: value for name, value in asdict(layout).items() if name not in ("readers", "zones")
    }  # as the rows and the settings say
    return {**shown, "shards": layout.shards, "shard_counts": counts, "rows": rows, "moving": moving}
