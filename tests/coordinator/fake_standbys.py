"""Standbys on other hosts in the world of `fakes`: sets of rows, which follow one after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from dbsp.errors import FencedError, UnavailableError
from dbsp.runtime.standbys import Lag, StandbyRoute
from dbsp.store import CheckpointId, VersionInfo
from tests.coordinator.fake_beside import Beside
from tests.coordinator.fakes import FakeDatabase, Row, World

T = TypeVar("T")
Versions = dict[int, tuple[CheckpointId, frozenset[Row]]]


class FakeFollowing(Beside):
    """A following beside the steps; `others` are those of the same coordinator.

    Followings of one coordinator wait for each other. So while one is stopped in its midst, another does not go on: it would wait
    for a lock that a frame below it holds.
    """

    def __init__(self, run: Callable[[], Any], others: list[FakeFollowing]) -> None:
        super().__init__([run], {})
        self.others = others

    def advance(self) -> None:
        if not any(other.busy for other in self.others):
            super().advance()

    def take(self, each: Callable[[], Any]) -> None:
        self.reports = each()


class Followings:
    """The followings of one coordinator."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.all: list[FakeFollowing] = []

    def __call__(self, run: Callable[[], T]) -> Future[T]:
        """Run it when the simulator lets it go on."""
        following = FakeFollowing(run, self.all)
        self.all.append(following)
        self.world.copies.append(following)
        return cast("Future[T]", following.future)


@dataclass(slots=True)
class FakeStandbys:
    """The standbys of the world's workers."""

    world: World

    @property
    def far(self) -> dict[tuple[int, str], tuple[int, Versions]]:
        assert self.world.far is not None
        return self.world.far

    def follow_standbys(
        self,
        version: int,
        epoch: int,
        routes: Sequence[StandbyRoute],
        on_lag: Callable[[Lag], None],
        ended: Callable[[], bool],
    ) -> None:
        for route in routes:
            self.world.point(f"before follow {route.worker}")
            if ended():
                raise UnavailableError("the following was ended")
            self._follow(version, epoch, route)
            on_lag(Lag(route=route, version=version, bytes=0))
            self.world.point(f"after follow {route.worker}")

    def _follow(self, version: int, epoch: int, route: StandbyRoute) -> None:
        self._ask(route.host)
        if not self.world.bring(route.worker, route.home):
            raise UnavailableError(f"no database: worker={route.worker}")
        source = self.world.databases[route.worker].versions
        if version not in source:
            raise UnavailableError(f"no such version: worker={route.worker} version={version}")
        newest, held = self.far.get((route.worker, route.host), (0, {}))
        if epoch < newest:
            raise FencedError(f"fenced: epoch={epoch} newest={newest}")
        same = {number: kept for number, kept in held.items() if source.get(number) == kept and number >= version - 1}
        self.far[route.worker, route.host] = epoch, {**same, version: source[version]}

    def standby_versions(self, places: Sequence[tuple[int, str]]) -> Mapping[tuple[int, str], tuple[VersionInfo, ...]]:
        self.world.point("ask standbys")
        return {place: self._versions(place) for place in places}

    def _versions(self, place: tuple[int, str]) -> tuple[VersionInfo, ...]:
        self._ask(place[1])
        held = self.far.get(place, (0, {}))[1]
        return tuple(VersionInfo(version=number, checkpoint=found) for number, (found, _) in sorted(held.items()))

    def take_over(
        self, epoch: int, places: Sequence[tuple[int, str]], since: Mapping[int, int], wanted: VersionInfo
    ) -> tuple[int, ...]:
        return tuple(worker for worker, host in places if self._takes_over(epoch, worker, host, since[worker], wanted))

    def _takes_over(self, epoch: int, worker: int, host: str, since: int, wanted: VersionInfo) -> bool:
        self.world.point(f"take over {worker}")
        if self.world.bring(worker, host) and self.world.databases[worker].epoch >= since:
            return False
        if wanted not in self._versions((worker, host)):
            return False
        found = self.world.databases.get(worker)
        if found is not None and found.host == host:
            del self.world.databases[worker]
        versions = self.far.pop((worker, host))[1]
        self.world.put(worker, FakeDatabase(versions=versions, host=host, epoch=epoch))
        return True

    def discard_standbys(self, epoch: int, places: Sequence[tuple[int, str]]) -> Sequence[tuple[int, str]]:
        near = [place for place in places if place[1] not in self.world.silent]
        for place in near:
            self.world.point(f"discard standby {place[0]}")
            if self.far.get(place, (0, {}))[0] > epoch:
                raise FencedError(f"fenced: epoch={epoch}")
            self.far.pop(place, None)
        return near

    def _ask(self, host: str) -> None:
        if host in self.world.silent:
            raise UnavailableError(f"the host does not answer: host={host}")
        if host in self.world.broken:
            raise UnavailableError(f"the disk cannot be used: host={host}")
