"""The hot strategies by name, and the layouts under which a migration runs.

The strategy `warmup` is not here: it copies shards, not keys, and needs no distributor.
"""

from __future__ import annotations

from dataclasses import replace

from dbsp.distribute.icadd import IcaddDistributor
from dbsp.distribute.names import STRATEGIES
from dbsp.distribute.redistribute import RedistributeDistributor
from dbsp.errors import ConfigError
from dbsp.layout import Layout

AnyDistributor = IcaddDistributor | RedistributeDistributor


def distributor(strategy: str, worker: int, layout: Layout, region: int = 0) -> AnyDistributor:
    """Return a worker's distributor while no key moves."""
    match strategy:
        case "icadd":
            return IcaddDistributor(worker=worker, old=layout, region=region)
        case "redistribute":
            return RedistributeDistributor(worker=worker, old=layout, region=region)
        case _:
            raise ConfigError(f"no such strategy: strategy={strategy}", f"choose one of {', '.join(STRATEGIES)}")


def joint(old: Layout, new: Layout) -> Layout:
    """Return the layout of a version during a migration: all workers of both layouts, and the owners of the new layout.

    Only the distributors' states tell where a single key is now; `owners` has the worker that will own the key.

    >>> from dbsp.layout import initial, rescaled
    >>> two = initial(2, shards=4)
    >>> joint(two, rescaled(two, 3, step=9)).workers, joint(two, rescaled(two, 1, step=9)).workers
    ((0, 1, 2), (0, 1))
    """
    places = {worker: (host, first) for layout in (new, old) for worker, host, first in _places(layout)}
    workers = tuple(sorted(places))
    return replace(
        new, workers=workers, hosts=tuple(places[worker][0] for worker in workers),
        first_steps=tuple(places[worker][1] for worker in workers),
    )  # fmt: skip


def _places(layout: Layout) -> list[tuple[int, str, int]]:
    return list(zip(layout.workers, layout.hosts, layout.first_steps, strict=True))
