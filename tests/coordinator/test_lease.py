"""The lease of a coordinator: who takes over and when, and that nobody does while it lives. Time is made."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from dbsp.coordinator.takeover.lease import CoordinatorLease, name_of, place_of
from dbsp.errors import AwayError
from dbsp.logs import Heartbeat

LEASE_S, LOOK_S = 5.0, 0.2


class Broker:
    """The heartbeats of a pipeline, as everybody reaches them; and the time."""

    def __init__(self) -> None:
        self.now_s, self.away, self.beats = 0.0, False, list[Heartbeat]()

    def beat(self, beat: Heartbeat, timeout_s: float) -> int:
        self._answer(timeout_s)
        self.beats.append(beat)
        return len(self.beats) - 1

    def end(self) -> int:
        self._answer(LEASE_S)
        return len(self.beats)

    def read(self, first: int) -> Mapping[int, Heartbeat]:
        self._answer(LEASE_S)
        return dict(list(enumerate(self.beats))[first:])

    def close(self) -> None: ...

    def _answer(self, timeout_s: float) -> None:
        if self.away:
            raise AwayError(f"away for {timeout_s} s")

    def listen(self) -> CoordinatorLease:
        return CoordinatorLease(self, LEASE_S, lambda: self.now_s)


EVENTS = st.lists(
    st.tuples(st.sampled_from(["run", "away", "sleep"]), st.floats(0.1, 12, allow_nan=False)), min_size=1, max_size=12
)


def live(
    broker: Broker, standbys: list[CoordinatorLease], seconds: float, *, owner: bool, heard: bool = True
) -> list[int]:
    """Let time pass, in which the owner beats each second if the brokers answer; return whose turn it was."""
    turns, until, next_beat = [], broker.now_s + seconds, broker.now_s
    while broker.now_s < until:
        if owner and not broker.away and broker.now_s >= next_beat:
            broker.beat(Heartbeat(of="owner"), 1)
            next_beat = broker.now_s + LEASE_S / 5
        broker.now_s += LOOK_S
        turns += [number for number, each in enumerate(standbys) if heard and each.is_over()]
    return turns


@given(EVENTS)
def test_nobody_takes_over_from_a_coordinator_that_beats(events: list[tuple[str, float]]) -> None:
    """Whatever the brokers' absences, and however long a standby was not awake."""
    broker = Broker()
    standbys = [broker.listen(), broker.listen()]
    for what, seconds in events:
        broker.away = what == "away"
        assert live(broker, standbys, seconds, owner=True, heard=what != "sleep") == []
        broker.away = False


@given(EVENTS, st.integers(1, 4))
def test_one_of_the_standbys_takes_over_in_time(events: list[tuple[str, float]], count: int) -> None:
    """From the last heartbeat on, when the brokers answer again and all are awake: within a lease, and one of them."""
    broker = Broker()
    standbys = [broker.listen() for _ in range(count)]
    live(broker, standbys, 2, owner=True)
    for what, seconds in events:
        broker.away = what == "away"
        live(broker, standbys, seconds if what != "run" else 0, owner=False, heard=what != "sleep")
    broker.away = False
    since = broker.now_s
    while not (turns := live(broker, standbys, LOOK_S, owner=False)):
        assert broker.now_s - since <= LEASE_S + 2 * LOOK_S
    assert turns == list(range(count))
    taken = [each.try_take(f"standby {number}") for number, each in enumerate(standbys)]
    assert taken == [True] + [False] * (count - 1)
    assert [each.is_over() for each in standbys] == [False] * count, "all have heard the new one"


def test_the_coordinator_that_comes_back_in_the_last_moment_goes_on() -> None:
    broker = Broker()
    standby = broker.listen()
    assert live(broker, [standby], LEASE_S + LOOK_S, owner=False)
    broker.beat(Heartbeat(of="owner"), 1)
    assert not standby.try_take("standby")
    assert not standby.is_over()
    assert standby.newest == Heartbeat(of="standby")
    assert len(live(broker, [standby], LEASE_S + LOOK_S, owner=False)) > 0


def test_a_coordinator_that_becomes_another_version_has_more_time() -> None:
    broker = Broker()
    standby = broker.listen()
    broker.beat(Heartbeat(of="owner", pause_s=60), 1)
    assert live(broker, [standby], 59, owner=False) == []
    assert live(broker, [standby], 2, owner=False)


def test_a_heartbeat_tells_the_host_and_the_folder(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    broker = Broker()
    lease = broker.listen()
    assert not lease.is_of(place_of(tmp_path))
    broker.beat(Heartbeat(of=name_of(tmp_path)), 1)
    lease.is_over()
    assert lease.is_of(place_of(tmp_path))
    assert not lease.is_of(place_of(tmp_path / "other"))
    assert name_of(tmp_path) != name_of(tmp_path)
