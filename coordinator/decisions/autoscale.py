"""When to go on with more or fewer workers: a pure policy of figures and time; off unless `[autoscale] enabled = true`.

It looks at a window of samples, each a step's latency and the rows that waited after it. More workers (twice as many) when
most samples of the window are above a bound; fewer (one less) when all are far below both. After every change of the layout,
whoever asked for it, comes a cool-down during which nothing is decided, and every change empties the window: what was measured
with other workers does not count. A change is over when nothing moves any more: the cool-down begins there, however long a
warm-up or a migration took, and the window stays empty meanwhile.

When the last change was is kept in memory alone. A start is no change, nor is a replay or a pause: behind one the window is
waited for and no cool-down, unless recovery ends in another layout than the one the ledger had last published, or a rescale is
carried out after it.

Invariants: the count stays between `workers_min` and `workers_max`; no two decisions are closer than `cooldown_s`, and none
is closer to a change of the layout, except that a count outside the bounds is corrected at once when a change has led there; with
a constant load it does not swing: it shrinks only when the load that is left would still be below the bounds with a margin
(`SHRINK_SHARE`),
so the count it shrinks to does not ask to grow. The event loop posts its decisions as ordinary requests to rescale.
No clock and no I/O here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dbsp.errors import ConfigError

GROW_SHARE = 0.5
"""The part of the window that must be above a bound."""
SHRINK_SHARE = 0.5
"""What the load per worker, after shrinking, may be of the bounds at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoscaleSection:
    """`[autoscale]` of the settings; bounds are of one step's latency and of rows that wait unprocessed."""

    enabled: bool = False
    workers_min: int = 1
    workers_max: int = 4
    step_latency_ms_max: float = 1000.0
    backlog_rows_max: int = 1_000_000
    window_s: float = 30.0
    cooldown_s: float = 300.0

    def __post_init__(self) -> None:
        """Refuse bounds between which nothing fits."""
        if not 1 <= self.workers_min <= self.workers_max:
            raise ConfigError(
                f"no count lies between these: autoscale.workers_min={self.workers_min} workers_max={self.workers_max}",
                "set 1 <= workers_min <= workers_max in [autoscale]",
            )
        for name in ("step_latency_ms_max", "backlog_rows_max", "window_s", "cooldown_s"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"must be more than nothing: autoscale.{name}={getattr(self, name)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One step that did new work: when it was done, how long it took, how many rows waited then."""

    at_s: float
    latency_ms: float
    backlog_rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Watching:
    """What the policy remembers: samples of the window, in order of time, and since when it is being filled.

    `layout` is the version of the one last seen in use, `moved_s` when it was first seen, unless the start found it. `asked_s` is
    when the policy last asked for a count, unless the layout has changed since.
    """

    since_s: float
    samples: tuple[Sample, ...] = ()
    layout: int = 0
    moved_s: float | None = None
    asked_s: float | None = None


def looked(watching: Watching, layout: int, now_s: float, *, moving: bool) -> Watching:
    """Having looked at the layout in use; `moving`: a rescale is requested for or under way, or a migration leaves things behind.

    **Law** the same object if nothing moves and the layout is the one last seen; else its window is empty.

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
    """Its window begins anew: steps begin, or go on, and what was measured before does not count."""
    return replace(watching, since_s=now_s, samples=())


def seen(watching: Watching, sample: Sample, section: AutoscaleSection) -> Watching:
    """With one more sample; those that have left the window are forgotten."""
    kept = tuple(each for each in watching.samples if each.at_s > sample.at_s - section.window_s)
    return replace(watching, samples=(*kept, sample))


def decide(watching: Watching, workers: int, now_s: float, section: AutoscaleSection) -> tuple[int | None, Watching]:
    """(the count to go on with, or None; what to remember).

    **Law** pure; the count differs from `workers` and lies within the bounds. A count outside of them is corrected at once, even
    in the cool-down after the change that led there; where that was asked for and came to nothing, once more after a cool-down.

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
    """Whether what waits now speaks against fewer workers: no sample says so where none was taken in the window.

    After a pause, or a replay that was long, the window is as empty as where nothing comes.
    """
    return workers > section.workers_max or _fits(
        Sample(at_s=0.0, latency_ms=0.0, backlog_rows=backlog_rows), workers, fewer, section
    )


def _wanted(watching: Watching, workers: int, now_s: float, section: AutoscaleSection) -> int:
    bounded = min(max(workers, section.workers_min), section.workers_max)
    if bounded != workers:
        # what cannot be done must not be asked for again at every look
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
    """Whether a cool-down that began then is not over."""
    return since_s is not None and now_s - since_s < section.cooldown_s


def _is_above(sample: Sample, section: AutoscaleSection) -> bool:
    return sample.latency_ms > section.step_latency_ms_max or sample.backlog_rows > section.backlog_rows_max


def _fits(sample: Sample, workers: int, fewer: int, section: AutoscaleSection) -> bool:
    """Whether a step would be far below the bounds if fewer workers did all of its work."""
    more = workers / fewer
    return (
        sample.latency_ms * more <= SHRINK_SHARE * section.step_latency_ms_max
        and sample.backlog_rows * more <= SHRINK_SHARE * section.backlog_rows_max
    )
