"""A rescale adds, removes and replaces hosts: workers end where it says, and every step's outputs stay those of one worker."""

from __future__ import annotations

import itertools
import random
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

from dbsp.coordinator import build
from dbsp.coordinator.commands.cli import command
from dbsp.coordinator.decisions import commands, events
from dbsp.coordinator.decisions.strategies import STRATEGIES
from dbsp.coordinator.running.command_runner import CommandRunner
from dbsp.coordinator.running.control import request_rescale
from dbsp.coordinator.service import Service
from dbsp.errors import ConfigError, DbspError
from tests.coordinator import hosted, shop
from tests.coordinator.hosted import homes
from tests.coordinator.under_traffic import check_golden, make_folder, names, orders, settings, traffic
from tests.pace import in_turn, start, stride
from tests.spark.waiting import until

FIRST = ('layout.hosts=["a"]', "pipeline.workers=1", "checkpoint.interval_s=0.2")
HOSTS = "abcd"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pipeline whose hosts have disks of their own."""
    monkeypatch.setattr(build, "shares_disk", lambda _config: False)
    return make_folder(tmp_path)


@contextmanager
def running(folder: Path, machines: hosted.Machines, *overrides: str) -> Iterator[Service]:
    with hosted.running(folder, machines, *(overrides or FIRST), common_disk=True) as service:
        yield service


def of(names: str) -> tuple[tuple[str, float], ...]:
    return tuple((host, 1.0) for host in names)


@pytest.mark.skipif(not in_turn(0, 2), reason="at every second commit; `make soak` runs it")
def test_hosts_come_go_and_are_replaced_under_traffic(folder: Path, tmp_path: Path) -> None:
    """1 host, then 3, then 2, then another one in the place of one of them, each time by another strategy."""
    machines = hosted.Machines(folder / "hosts")
    with running(folder, machines) as service, traffic(service, 1):
        walk = ((3, "abc", "warmup"), (4, "ac", "icadd"), (4, "cd", "redistribute"), (2, "cb", "cold"))
        for workers, names, strategy in walk:
            before = homes(service)
            planned = service.plan_rescale(workers, of(names))
            service.rescale(workers, 60, strategy=strategy, hosts=of(names))
            after = homes(service)
            assert Counter(after.values()) == Counter(dict.fromkeys(names, workers // len(names)))
            assert {each.worker for each in planned.joining} == after.keys() - before.keys()
            assert set(planned.hosts_leaving) == {*before.values()} - {*after.values()}
            gone = [machines.home(host, worker) for worker, host in before.items() if worker not in after]
            assert not [place for place in gone if place.exists()], "a host that was left has no database any more"
    check_golden(folder, tmp_path)


def test_a_host_that_joins_reads_input(folder: Path, tmp_path: Path) -> None:
    """Of five partitions with as many rows each worker reads its share, by every strategy, also behind a restart.

    Who keeps which is decided by the few rows of the names, too (`tests/layout/test_input_readers.py`).
    """
    machines, several = hosted.Machines(folder / "hosts"), (*FIRST, "input.partitions=5")
    read = {0: {0, 1, 2, 3, 4}}
    for strategies in (STRATEGIES[:2], STRATEGIES[2:]):
        with running(folder, machines, *several) as service, traffic(service, 1, partitions=5):
            assert orders_of(service) == read, "who read before the restart reads behind it"
            for strategy in strategies:
                workers = len(read) % 3 + 1
                service.rescale(workers, 60, strategy=strategy, hosts=of(HOSTS[:workers]))
                read = orders_of(service)
                assert sorted(partition for mine in read.values() for partition in mine) == [0, 1, 2, 3, 4]
                shares = [len(read[worker]) for worker in sorted(read)]
                assert sorted(shares) == {1: [5], 2: [2, 3], 3: [1, 2, 2]}[workers]
                behind = service.snapshot.step + 1
                assert service.live_status.wait_for(
                    lambda now, workers=workers: now.last_report is not None and now.last_report.step > behind  # type: ignore[misc] # noqa: B023
                    and sum(each.rows_in > 0 for each in now.last_report.workers) == workers,
                    60,
                ), "all workers read rows"  # fmt: skip
    check_golden(folder, tmp_path)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_hot_partitions_are_read_by_different_workers(strategy: str, folder: Path, tmp_path: Path) -> None:
    """Both partitions of a worker are hot: a rescale to as many workers parts them, as `--dry-run` said, and a second is idle."""
    machines, draw = hosted.Machines(folder / "hosts"), random.Random(1)
    several = (*FIRST, "input.partitions=6", "pipeline.workers=3")

    def push(rows: dict[int, int]) -> None:
        for partition, count in rows.items():
            found = orders(draw, count, partition, 6)
            service.wait_until_processed(service.push("orders", found, partition=partition), 60)

    with running(folder, machines, *several) as service, shop.answering(service) as client:

        def said(*arguments: str) -> list[str]:
            result = CliRunner().invoke(command, ["--url", str(client.base_url), "rescale", "3", *arguments])
            assert result.exit_code == 0, result.output
            return result.output.splitlines()

        service.push("names", names(draw, 200))
        first = orders_of(service)
        hot, other = sorted(next(mine for mine in first.values() if len(mine) == 2))
        assert said("--dry-run")[0].startswith("3 -> 3 workers would move 0 of")
        # no two alike: rows decay between the dry run and the rescale, and rounding must not decide between equal ones
        push({partition: 20 * (partition + 1) + 600 * (partition in (hot, other)) for partition in range(6)})
        planned = [line for line in said("--dry-run") if line.startswith("partition ")]
        before = orders_of(service)
        assert before == first, "a dry run moves nothing"
        done = [line for line in said("--strategy", strategy) if line.startswith("partition ")]
        assert done == [line.replace("would go", "went") for line in planned]
        after = orders_of(service)
        assert [mine for mine in after.values() if {hot, other} <= mine] == [], "on different workers"
        moved = {f"partition {each} of orders went from worker {old} to worker {new}"
                 for old in before for new in after if old != new for each in before[old] & after[new]}  # fmt: skip
        assert moved == {line for line in done if " orders " in line}
        assert moved
        assert said("--strategy", strategy) == ["there are 3 workers already: nothing was moved"]
        push(dict.fromkeys(range(6), 20))
    check_golden(folder, tmp_path)


def orders_of(service: Service) -> dict[int, set[int]]:
    """Return the partitions of the orders that each worker reads."""
    return {row["worker"]: set(row["partitions"]["orders"]) for row in service.layout_status()["rows"]}


def test_a_rescale_spreads_workers_over_zones(folder: Path) -> None:
    """Both workers are in the north. After a start with zones, a rescale to as many moves one to the south, and no other."""
    machines, two = hosted.Machines(folder / "hosts"), (*FIRST, 'layout.hosts=["a", "b"]', "pipeline.workers=2")
    with running(folder, machines, *two) as service:
        assert homes(service) == {0: "a", 1: "b"}
    zones = 'layout.zones={a="north", b="north", c="south"}'
    with running(folder, machines, *FIRST, 'layout.hosts=["a", "b", "c"]', zones) as service, traffic(service, 1):
        assert service.plan_rescale(2).hosts_joining == ("c",)
        service.rescale(2, 60)
        assert homes(service) == {0: "a", 2: "c"}
        assert service.rescale(2, 60) is None
    with running(folder, machines, *FIRST, 'layout.hosts=["a", "b", "c"]', zones) as service:
        assert service.rescale(2, 60) is None, "the zones are those of the settings behind a restart, too"


def test_a_replaced_host_moves_its_share_once(folder: Path) -> None:
    """Worker 1 on b gives its shards to worker 2 on c; nobody else's move, and the second call moves nothing."""
    machines = hosted.Machines(folder / "hosts")
    with (
        running(folder, machines, *FIRST, 'layout.hosts=["a", "b"]', "pipeline.workers=2") as service,
        traffic(service, 1),
    ):
        owned = service.layout().shard_counts()
        moved = service.rescale(2, 60, hosts=of("ac"))
        assert moved is not None
        assert (moved.shards_moved, homes(service)) == (owned[1], {0: "a", 2: "c"})
        assert service.rescale(2, 60, hosts=of("ac")) is None
        assert service.rescale(2, 60) is None


@pytest.mark.skipif(not in_turn(1, 2), reason="at every second commit; `make soak` runs it")
@pytest.mark.parametrize("seed", [1, pytest.param(None, marks=pytest.mark.soak)])
def test_random_hosts_with_ends_at_any_moment(seed: int | None, folder: Path, tmp_path: Path) -> None:
    """The service ends in the midst of a rescale and starts again: it goes on to the hosts of the newest request."""
    rounds, seed = (5, seed) if seed is not None else (25, random.SystemRandom().randrange(1 << 32))
    print(f"seed {seed}")
    draw, machines, wanted = random.Random(seed), hosted.Machines(folder / "hosts"), (1, of("a"))
    for _ in range(rounds):
        with running(folder, machines) as service, traffic(service, draw.randrange(1 << 32)):
            reaches(service, *wanted)
            wanted = draw.randint(1, 4), of("".join(draw.sample(HOSTS, draw.randint(1, 3))))
            asking = threading.Thread(target=rescale, args=(service, *wanted, draw.choice(STRATEGIES)))
            asking.start()
            until(lambda: is_noted(service, *wanted), "the request is durable")  # noqa: B023 - called at once
            version = service.snapshot.version + draw.randint(0, 4)
            service.live_status.wait_for(lambda now, version=version: now.version >= version, 60)  # type: ignore[misc]
            if draw.random() < 0.7:
                service.stop(now=True)
            asking.join()
    with running(folder, machines) as service:
        reaches(service, *wanted)
    check_golden(folder, tmp_path)


def is_noted(service: Service, workers: int, hosts: tuple[tuple[str, float], ...]) -> bool:
    """Return whether the ledger has a request, or its result."""
    ledger = service.built.parts.control.load()
    return ledger is not None and ledger.offered == hosts and workers in (ledger.rescale, len(service.layout().workers))


def rescale(service: Service, workers: int, hosts: tuple[tuple[str, float], ...], strategy: str) -> None:
    with suppress(DbspError):
        service.rescale(workers, 60, strategy=strategy, hosts=hosts)


def reaches(service: Service, workers: int, hosts: tuple[tuple[str, float], ...]) -> None:
    """Wait for the layout that was asked for last."""
    names = {host for host, _ in hosts}
    assert service.live_status.wait_for(
        lambda now: now.layout is not None and len(now.layout.workers) == workers and {*now.layout.hosts} <= names
        and now.rescale is None and now.waiting is None and now.state == "Running", 60,
    ), service.snapshot  # fmt: skip


def test_the_later_choice_of_hosts_counts(folder: Path) -> None:
    """Hosts that a rescale named outlive a restart; changed settings take their place, and the same settings do not."""
    machines = hosted.Machines(folder / "hosts")
    with running(folder, machines) as service:
        service.rescale(2, 60, hosts=of("bc"))
    with running(folder, machines) as service:
        assert service.layout().offered == of("bc")
        service.rescale(3, 60)
        assert {*homes(service).values()} == {"b", "c"}
    with running(folder, machines, *FIRST, 'layout.hosts=["d"]') as service:
        assert service.layout().offered == of("d")
        service.rescale(2, 60)
        assert {*homes(service).values()} == {"d"}


def test_a_request_for_the_same_number_outlives_a_crash(folder: Path) -> None:
    """It was noted, and the process ended before it began: the number is reached, the hosts, the zones or the weights are not."""
    machines = hosted.Machines(folder / "hosts")

    def crashed(workers: int, *settings: str, hosts: tuple[tuple[str, float], ...] | None = None) -> None:
        with running(folder, machines, *settings) as service:
            control = service.built.parts.control
            control.change(None, lambda ledger: request_rescale(ledger, workers, hosts=hosts))
            service.stop(now=True)

    crashed(1, hosts=of("b"))
    with running(folder, machines) as service:
        reaches(service, 1, of("b"))
        assert homes(service) == {1: "b"}
    two = (*FIRST, 'layout.hosts=["a", "b"]')
    with running(folder, machines, *two) as service:
        service.rescale(2, 60)
        assert homes(service) == {0: "a", 1: "b"}
    zones = (*FIRST, 'layout.zones={a="north", b="north", c="south"}', 'layout.hosts=["a", "b", "c"]')
    crashed(2, *zones)
    with running(folder, machines, *zones) as service:
        until(lambda: homes(service) == {0: "a", 2: "c"}, "a worker is in the other zone")
    weights = (*FIRST, 'layout.hosts=["a", "c"]', "layout.weights={c=1.5}")
    crashed(2, *weights)
    with running(folder, machines, *weights) as service:
        until(lambda: requested(service) == (None, None), "the rescale has ended")
        owned = service.layout().shard_counts()
        assert owned[2] > owned[0] + 2, owned


def requested(service: Service) -> tuple[int | None, object]:
    """Return the rescale of the ledger, and its rows."""
    ledger = service.built.parts.control.load()
    assert ledger is not None
    return ledger.rescale, ledger.rescale_rows


def are_parted(service: Service, partitions: set[int]) -> bool:
    """Return whether no worker reads all of these partitions of orders."""
    return not any(partitions <= mine for mine in orders_of(service).values())


@contextmanager
def dying(monkeypatch: pytest.MonkeyPatch, service: Service, at: int) -> Iterator[threading.Event]:
    """From its command of this number on, the service does nothing any more but end; the event says that it came so far.

    The first command is the one after the request is in the ledger: an earlier death may lose the request.
    """
    died, numbers, perform, begun = threading.Event(), itertools.count(1), CommandRunner.perform, threading.Event()

    def instead(runner: CommandRunner, command: commands.Command) -> events.Event:
        if not begun.is_set() and requested(service)[0] is not None:
            begun.set()
        if isinstance(command, commands.Shutdown) or not begun.is_set() or next(numbers) < at:
            return perform(runner, command)
        died.set()
        return events.Failed(code="fenced", message="it died")

    with monkeypatch.context() as patch:
        patch.setattr(CommandRunner, "perform", instead)
        yield died


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_rescale_of_partitions_alone_outlives_a_crash_at_every_command(
    strategy: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restart knows no recent rows: those of the request decide, and two hot partitions are parted as they were to be."""
    machines, draw = hosted.Machines(folder / "hosts"), random.Random(1)
    several = (*FIRST, "input.partitions=6", "pipeline.workers=3", "checkpoint.interval_s=1000")
    points = 0
    for at in itertools.count(1 + start(4), stride(4)):
        with running(folder, machines, *several) as service:
            if not points:
                service.push("names", names(draw, 200))
            hot, other = sorted(next(mine for mine in orders_of(service).values() if len(mine) > 1))[:2]
            for partition in range(6):
                rows = orders(draw, 600 if partition in (hot, other) else 20, partition, 6)
                position = service.push("orders", rows, partition=partition)
            service.wait_until_processed(position, 60)
            with dying(monkeypatch, service, at) as died:
                rescale(service, 3, service.layout().offered, strategy)
                if not died.is_set():
                    break
                assert service.wait_for_end(60) is not None
            service._finish = None  # the end was looked at
        with running(folder, machines, *several) as service:
            until(lambda: requested(service) == (None, None), f"the rescale has ended: {at}")
            parted = partial(are_parted, service, {hot, other})
            until(parted, f"the layout's readers are shown, and no part was dropped: {at}")
        points += 1
    print(f"{strategy}: {points} points")
    check_golden(folder, tmp_path)


def test_hosts_that_cannot_be_are_refused(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    machines = hosted.Machines(folder / "hosts")
    with running(folder, machines) as service:
        for hosts in ((), (("b", 0.0),), (("b", float("nan")),)):
            with pytest.raises(ConfigError, match="host"):
                service.rescale(1, 60, hosts=hosts)
        assert homes(service) == {0: "a"}
    with (
        Service(settings(make_folder(tmp_path_factory.mktemp("unnamed")))) as unnamed,
        pytest.raises(ConfigError, match=r"cannot name hosts where \[layout\] names none"),
    ):
        unnamed.rescale(2, 60, hosts=of("ab"))


def test_the_command_line_says_who_joins_and_which_host_is_free(folder: Path) -> None:
    machines = hosted.Machines(folder / "hosts")
    with running(folder, machines) as service, shop.answering(service) as client:

        def said(*arguments: str) -> str:
            result = CliRunner().invoke(command, ["--url", str(client.base_url), "rescale", *arguments])
            assert result.exit_code == 0, result.output
            return result.output

        assert "worker 1 joins on host b\nworker 0 leaves on host a\nno worker is on a then" in said(
            "1", "--hosts", "b", "--dry-run"
        )
        assert homes(service) == {0: "a"}
        assert "no worker is on a any more: what runs there can be stopped" in said("1", "--hosts", "b")
        said("3", "--hosts", "b=2,c")
        assert Counter(homes(service).values()) == {"b": 2, "c": 1}
        for wrong, why in (("b,b", "different hosts"), ("b=x", "a weight is a number"), ("", "different hosts")):
            result = CliRunner().invoke(command, ["--url", str(client.base_url), "rescale", "2", "--hosts", wrong])
            assert result.exit_code != 0
            assert why in str(result.exception) + result.output
