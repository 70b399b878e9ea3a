"""Every task of a runtime may run again, late: when the next version is out, under a newer epoch, in another process.

The runtime notes each task that it runs on a worker, whatever its kind. Now and then one of them runs once more, on handles of
its own, to its end or as far as its patience lasts. Nobody hears of it, and it must change nothing that anybody can see. The
random numbers are its own, and no other fault strikes meanwhile: so a seed goes on as it would without late tasks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from dbsp.errors import DbspError
from dbsp.runtime import transfers
from dbsp.runtime.work import Work
from dbsp.store import CheckpointId

KINDS = (
    "create", "fence", "fence_other", "open_version", "pin", "copy", "commit", "take_over", "hold_merges", "warm", "cool",
    "condemn", "discard", "view_part",
)  # fmt: skip
APART_KINDS = (*KINDS, "ship", "take")
"""Where hosts have disks of their own, state is sent to other hosts too, and taken in there."""
KEPT_MAX = 64


@dataclass(frozen=True, slots=True)
class Noted:
    """A task that was run: its kind, and what runs it again."""

    kind: str
    run: Callable[[Work], object]


@dataclass
class LateTasks:
    """The tasks that may run again, and what became of those that did."""

    random: Random
    preferred: tuple[str, ...] = ()
    """Kinds of which one runs in every second case where one was noted: tasks that are rare else."""
    noted: list[Noted] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    created: set[int] = field(default_factory=set)
    """Workers for which a late task may have made a database again that nobody wants: it is empty, and goes with the next."""

    def note(self, function: Callable[..., object], workers: Iterable[int], *arguments: Any) -> None:
        """Keep a task, in the place of one of many."""
        for worker in workers:
            found = Noted(function.__name__, _bound(function, worker, arguments))
            if function.__name__ == "create":
                self.created.add(worker)
            if len(self.noted) < KEPT_MAX:
                self.noted.append(found)
            else:
                self.noted[self.random.randrange(KEPT_MAX)] = found

    def run_one(self, make_work: Callable[[int], Work]) -> None:
        """Run one of them again; `make_work(looks)` gives it that many looks at databases and logs."""
        if not self.noted:
            return
        rare = [at for at, task in enumerate(self.noted) if task.kind in self.preferred]
        choose_rare = rare and self.random.random() < 0.5
        at = self.random.choice(rare) if choose_rare else self.random.randrange(len(self.noted))
        task = self.noted.pop(at)
        work = make_work(self.random.choice((1, 2, 3, 1000)))
        self.counts[task.kind] += 1
        try:
            task.run(work)
        except DbspError:
            self.refused[task.kind] += 1


def _bound(function: Callable[..., object], worker: int, arguments: tuple[Any, ...]) -> Callable[[Work], object]:
    return lambda work: function(work, worker, *arguments)


def create(work: Work, worker: int, checkpoint: CheckpointId) -> None:
    """As the runtimes do it."""
    work.resources.database(worker, checkpoint)


def ship(work: Work, worker: int, route: transfers.Route, *piece: Any) -> None:
    """Read once more what the worker sends to another host."""
    assert worker == route.source_worker
    transfers.ship(work, route, *piece)


def take(work: Work, worker: int, route: transfers.Route, *piece: Any) -> None:
    """Take in once more what has come for the worker."""
    assert worker == route.target_worker
    transfers.take(work, route, *piece)
