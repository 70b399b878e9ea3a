"""Decide when to change the number of workers, by a pure policy; it is off unless `[autoscale] enabled = true`.

The policy uses a window of samples; each has a step's latency and the rows that waited after the step. It doubles
the workers when most samples of the window are above a bound. It removes one worker when all samples are far below both
bounds.

After every change of the layout, by a user or by the policy, there is a cool-down of `cooldown_s` without a decision. A
change also empties the window, because measurements with other workers do not count. A change is over when no state
moves any more. The cool-down begins then, however long the warm-up or migration took, and the window stays empty
until then.

The time of the last change is in memory only. A start, a replay and a pause are no changes. After them the policy waits
for a full window, without a cool-down. An exception: recovery ends in another layout than the last published one, or
carries out a requested rescale.

Invariants:

- The count stays between `workers_min` and `workers_max`.
- Two decisions are at least `cooldown_s` apart, and so are a decision and the change of the layout before it. Only a
  count outside the bounds, to which a change has led, is corrected at once.
- Under a constant load the count does not oscillate. It shrinks only when the load per worker would still be below the
  bounds by the margin `SHRINK_SHARE`. So the smaller count gives no reason to grow.

The event loop posts the decisions as ordinary requests to rescale. No clock and no I/O here.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from dbsp.errors import ConfigError

GROW_SHARE = 0.5
"""The policy adds workers if more than this share of the window's samples is above a bound."""
SHRINK_SHARE = 0.5
"""The policy removes a worker only if the load would then be at most this share of the bounds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoscaleSection:
    """The `[autoscale]` section of the settings: bounds of a step's latency and of the rows that wait unprocessed.

    `hosts_command` is a program that provides hosts before a rescale, and takes back unused ones after it
    (`dbsp.coordinator.running.host_command`).
    """

    enabled: bool = False
    workers_min: int = 1
    workers_max: int = 4
    step_latency_ms_max: float = 1000.0
    backlog_rows_max: int = 1_000_000
    window_s: float = 30.0
    cooldown_s: float = 300.0
    hosts_command: list[str] = field(default_factory=list)
    hosts_timeout_s: float = 600.0

    def __post_init__(self) -> None:
        """Raise `ConfigError` if the worker bounds are contradictory, or a limit is not positive."""
        if not 1 <= self.workers_min <= self.workers_max:
            raise ConfigError(
                "the bounds on workers contradict each other:"
                f" autoscale.workers_min={self.workers_min} workers_max={self.workers_max}",
                "set 1 <= workers_min <= workers_max in [autoscale]",
            )
        for name in ("step_latency_ms_max", "backlog_rows_max", "window_s", "cooldown_s", "hosts_timeout_s"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"the setting must be greater than 0: autoscale.{name}={getattr(self, name)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The measurements of a step that did new work: when it finished, how long it took, and how many rows waited then."""

    at_s: float
    latency_ms: float
    backlog_rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Watching:
    """The memory of the policy: the samples of the window, ordered by time, and since when the window is collected.

    `layout` is the version of the layout that was last observed in use. `moved_s` is when that layout was first
    observed; None if the start found it. `asked_s` is when the policy last requested a count; None if the layout has
    changed since.
    """

    since_s: float
    samples: tuple[Sample, ...] = ()
    layout: int = 0
    moved_s: float | None = None
    asked_s: float | None = None


def looked(watching: Watching, layout: int, now_s: float, *, moving: bool) -> Watching:
    """Update the memory with the layout in use; with `moving`, a rescale or migration is not over yet.

    **Law** the same object if nothing moves and the layout is the one last seen; else the window is empty.

    **Example**

    >>> section = AutoscaleSection(enabled=True, window_s=10, cooldown_s=60)
    >>> after = looked(Watching(since_s=0, layout=1), 2, 100, moving=False)
    >>> decide(after, 4, 159, section)[0], decide(after, 4, 160, section)[0]
    (None, 3)
    """
    if moving:
        return emptied(watching, now_s)
    if layout == watching.layout:
        return watching
    return Watching(since_s=now_s, layout=layout, moved_s=now_s)


def emptied(watching: Watching, now_s: float) -> Watching:
    """Empty the window and restart it at `now_s`: steps begin or resume, and earlier measurements do not count."""
    return replace(watching, since_s=now_s, samples=())


def seen(watching: Watching, sample: Sample, section: AutoscaleSection) -> Watching:
    """Add a sample, and drop the samples that are older than the window."""
    kept = tuple(each for each in watching.samples if each.at_s > sample.at_s - section.window_s)
    return replace(watching, samples=(*kept, sample))


def decide(watching: Watching, workers: int, now_s: float, section: AutoscaleSection) -> tuple[int | None, Watching]:
    """Return the requested count of workers (None for no change) and the memory for the next call.

    **Law** pure; the count differs from `workers` and is within the bounds. A count outside the bounds is corrected at
    once, even in the cool-down after the change that led there. If the corrected count was requested but not reached,
    the request is repeated after a cool-down.

    **Example**

    >>> section = AutoscaleSection(enabled=True, window_s=10, cooldown_s=60, step_latency_ms_max=100)
    >>> slow = Watching(since_s=0)
    >>> for at in range(12):
    ...     slow = seen(slow, Sample(at_s=at, latency_ms=250, backlog_rows=0), section)
    >>> wanted, after = decide(slow, 1, 12, section)
    >>> wanted, decide(after, 2, 13, section)[0]
    (2, None)
    """
    if not section.enabled:
        return None, watching
    wanted = _wanted(watching, workers, now_s, section)
    if wanted == workers:
        return None, watching
    return wanted, Watching(since_s=now_s, layout=watching.layout, asked_s=now_s)


def may_do_with(fewer: int, workers: int, backlog_rows: int, section: AutoscaleSection) -> bool:
    """Return whether `fewer` workers could process the rows that wait now; True if `workers` is above the maximum.

    The window is not enough to decide this: after a pause or a long replay it is as empty as without input.
    """
    return workers > section.workers_max or _fits(
        Sample(at_s=0.0, latency_ms=0.0, backlog_rows=backlog_rows), workers, fewer, section
    )


def _wanted(watching: Watching, workers: int, now_s: float, section: AutoscaleSection) -> int:
    bounded = min(max(workers, section.workers_min), section.workers_max)
    if bounded != workers:
        # a correction that fails must not be requested again at every look, only after a cool-down
        return workers if _rests(watching.asked_s, now_s, section) else bounded
    if _rests(watching.asked_s, now_s, section) or _rests(watching.moved_s, now_s, section):
        return workers
    if now_s - watching.since_s < section.window_s:
        return workers
    recent = [each for each in watching.samples if each.at_s > now_s - section.window_s]
    above = [each for each in recent if _is_above(each, section)]
    if recent and len(above) > GROW_SHARE * len(recent):
        return min(2 * workers, section.workers_max)
    fewer = max(workers - 1, section.workers_min)
    if fewer < workers and all(_fits(each, workers, fewer, section) for each in recent):
        return fewer
    return workers


def _rests(since_s: float | None, now_s: float, section: AutoscaleSection) -> bool:
    """Return True while a cool-down that began at `since_s` is not over."""
    return since_s is not None and now_s - since_s < section.cooldown_s


def _is_above(sample: Sample, section: AutoscaleSection) -> bool:
    return sample.latency_ms > section.step_latency_ms_max or sample.backlog_rows > section.backlog_rows_max


def _fits(sample: Sample, workers: int, fewer: int, section: AutoscaleSection) -> bool:
    """Return True if the load would be far below the bounds with `fewer` workers doing all of the work."""
    more = workers / fewer
    return (
        sample.latency_ms * more <= SHRINK_SHARE * section.step_latency_ms_max
        and sample.backlog_rows * more <= SHRINK_SHARE * section.backlog_rows_max
    )
