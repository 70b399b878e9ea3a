"""Hosts of workers on which far reads run, in this process: every message is pickled, and nothing is kept between two."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from typing import Any

from dbsp.plan.plan import Plan
from dbsp.runtime import far_views
from dbsp.runtime.far_views import FarPage, FarViews, PageAsk, PageOrder
from dbsp.runtime.leases import NO_OLD_VIEWS, traces_of
from dbsp.store import Database, Lease


class FarHosts:
    """The databases of workers, in memory or not, reached by messages alone. `pages_sent` counts the bytes of rows."""

    def __init__(self, plan: Plan, databases: Mapping[int, Database], epoch: int) -> None:
        self.plan, self.databases, self.epoch = plan, databases, epoch
        self._leases: dict[tuple[int, int], Lease] = {}
        self._newest = 0
        self.pages_sent: list[int] = []
        self.asked: list[tuple[int, ...]] = []
        self.before: Callable[[], None] = lambda: None

    def lease(self, step: int) -> FarViews:
        self._newest += 1
        traces, found = traces_of(self.plan, NO_OLD_VIEWS), {}
        for worker, database in self.databases.items():
            database.attach(self.epoch)
            lease = self._leases[self._newest, worker] = database.lease(self.epoch, step, traces)
            found[worker] = far_views.extents({trace.id: lease.state(trace) for trace in traces})
        return FarViews(self.plan, step, (self._newest, self.epoch), carried(found), self)

    def pages(self, order: PageOrder, asks: Mapping[int, PageAsk]) -> Mapping[int, FarPage]:
        order, asks = carried((order, dict(asks)))
        self.before()
        found = {
            worker: far_views.read_page(self.plan, self._leases[order.name, worker], order, ask)
            for worker, ask in asks.items()
        }
        self.asked.append(tuple(asks))
        self.pages_sent += [len(page.data) for page in found.values()]
        return carried(found)

    def end(self, name: int) -> None:
        for place in [place for place in self._leases if place[0] == name]:
            self._leases.pop(place).end()


def carried(message: Any) -> Any:
    """The message as another process gets it."""
    return pickle.loads(pickle.dumps(message))
