"""Proofs where workers' disks are on other hosts: over copies of what the workers hold, which are bounded and then deleted."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dbsp.coordinator import build, layouts
from dbsp.coordinator.service import Service
from dbsp.coordinator.takeover import proof_copies, proving
from dbsp.coordinator.takeover.proof_copies import ProofCopies, copied_for_proof
from dbsp.coordinator.takeover.proving import OTHER_HOSTS, Proof, copies_home, prove
from dbsp.coordinator.takeover.upgrades import Restart
from dbsp.errors import EngineError
from dbsp.operators.groups.group_by import GroupByOperator
from dbsp.runtime import version_copies
from tests.coordinator.hosted import Machines, running
from tests.coordinator.test_proving import LOSES_A_ROW, SERVING
from tests.coordinator.test_upgrade import contents, indented
from tests.coordinator.under_traffic import make_folder, names, orders, settings
from tests.coordinator.versions import Installations
from tests.pace import in_turn

ON_HOSTS = ('layout.hosts=["a", "b"]', "pipeline.workers=2", "checkpoint.interval_s=3600")
APART = """
from dbsp.coordinator.takeover import proving
proving.shares_disk = lambda config: False
"""
"""The tests run workers in one process, where the settings would say that they share a disk."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pipeline whose hosts have disks of their own; a copy comes in many pieces."""
    for module in (build, layouts, proof_copies, proving):
        monkeypatch.setattr(module, "shares_disk", lambda _config: False)
    monkeypatch.setattr(proof_copies, "PIECE_BYTES", 4096)
    return make_folder(tmp_path)


@pytest.fixture
def machines(folder: Path) -> Machines:
    return Machines(folder / "hosts")


@pytest.fixture
def service(folder: Path, machines: Machines) -> Iterator[Service]:
    """A service with two checkpoints, and rows before, between and after them."""
    with running(folder, machines, *ON_HOSTS) as made:
        draw = random.Random(1)
        made.wait_until_processed(made.push("names", names(draw, 200)))
        for _ in range(2):
            put(made, draw, 2000)
            made.checkpoint()
        put(made, draw, 300)
        yield made


def put(service: Service, draw: random.Random, count: int) -> None:
    service.wait_until_processed(service.push("orders", orders(draw, count)))


@contextmanager
def copied(service: Service) -> Iterator[ProofCopies]:
    """The copies for a proof of this moment."""
    runtime, facts = service._loop.ask(lambda runtime, facts: (runtime, facts)).result(60)
    with copied_for_proof(service.config, runtime, facts) as found:
        yield found


def proved(service: Service) -> Proof:
    with copied(service) as found:
        assert not found.left_out, found
        return prove(service.config)


def test_steps_are_proved_over_copies_and_the_hosts_files_stay_as_they_are(
    service: Service, machines: Machines
) -> None:
    before, checkpoint = contents(machines.folder), service.snapshot.checkpoint_step
    with copied(service) as found:
        assert found.sent_bytes > 20 * proof_copies.PIECE_BYTES, "the copy comes in one piece"
        proof = prove(service.config)
        copies = contents(copies_home(service.config.data_dir))
    assert proof.left_out == ""
    assert (proof.first, proof.last) == (checkpoint - 1, service.snapshot.step), "from the older checkpoint on"
    assert 0 < proof.rows <= 2300
    assert len(copies) == 2, "a copy for each worker"
    assert contents(machines.folder) == before
    assert not copies_home(service.config.data_dir).exists()
    assert prove(service.config).left_out == OTHER_HOSTS, "without copies nothing is read"


def test_other_outputs_are_refused_with_step_and_view(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    right = GroupByOperator.step

    def wrong(self: GroupByOperator, *given: Any) -> Any:
        found = right(self, *given)
        return found.slice(0, max(0, len(found) - 1))

    with copied(service):
        monkeypatch.setattr(GroupByOperator, "step", wrong)
        with pytest.raises(EngineError, match=r"gives other outputs: .* step=\d+ .*views=per_name"):
            prove(service.config)
        monkeypatch.undo()


def test_steps_and_checkpoints_go_on_while_the_state_is_copied(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A version that the workers drop meanwhile is left out, and the steps after a later one are proved."""
    draw, original, dropped = random.Random(2), version_copies.piece, []

    def late(*given: Any) -> Any:
        if not dropped:
            dropped.append(service.checkpoint())
            put(service, draw, 100)
        return original(*given)

    monkeypatch.setattr(version_copies, "piece", late)
    found = proved(service)
    assert dropped
    assert (found.last, found.left_out) == (service.snapshot.step, "")
    assert found.rows > 0


def test_all_versions_that_are_copied_may_be_dropped_and_it_begins_again(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw, original, dropped = random.Random(3), version_copies.piece, []

    def late(*given: Any) -> Any:
        if len(dropped) < 2:
            for _ in range(2):
                put(service, draw, 100)
                dropped.append(service.checkpoint())
        return original(*given)

    monkeypatch.setattr(version_copies, "piece", late)
    found = proved(service)
    assert (len(dropped), found.rows > 0, found.left_out) == (2, True, "")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (lambda patch, machines: machines.silent.add("b"), "the workers' state was not copied: the host does not answer: host=b"),
        (lambda patch, machines: patch.setattr(proof_copies, "SECONDS_MAX", 0.0), "it takes longer than 0 s"),
        (
            lambda patch, machines: patch.setattr(proof_copies.shutil, "disk_usage", lambda _: _Little()),
            "the disk has too little room for a copy of the state: bytes=",
        ),
    ],
)  # fmt: skip
def test_what_is_not_copied_is_said_and_steps_go_on(
    service: Service,
    machines: Machines,
    monkeypatch: pytest.MonkeyPatch,
    given: Callable[[pytest.MonkeyPatch, Machines], Any],
    said: str,
) -> None:
    given(monkeypatch, machines)
    with copied(service) as found:
        assert said in found.left_out
    machines.silent.clear()
    assert not copies_home(service.config.data_dir).exists()
    put(service, random.Random(4), 10)


class _Little:
    """A disk that is almost full."""

    free = 1000


def test_a_state_above_the_limit_is_not_copied(folder: Path, machines: Machines) -> None:
    with running(folder, machines, *ON_HOSTS, "upgrade.max_proof_bytes=1000") as service:
        put(service, random.Random(1), 2000)
        service.checkpoint()
        with copied(service) as found:
            assert found.sent_bytes < 1000
        put(service, random.Random(2), 500)
        service.checkpoint()
        with copied(service) as found:
            assert found.left_out.startswith("the state on other hosts is larger than upgrade.max_proof_bytes: bytes=")
            assert found.sent_bytes == 0


def test_copies_that_a_crash_left_are_deleted_by_the_next_start(folder: Path, machines: Machines) -> None:
    left = copies_home(settings(folder).data_dir) / "0000"
    left.mkdir(parents=True)
    with running(folder, machines, *ON_HOSTS):
        assert not left.parent.exists()


def upgrade(service: Service, python: Path) -> Any:
    """As `coordinator upgrade` does it, without the process that would go on."""
    settings_file = service.config.folder / "pipeline.toml"
    service.upgrades.restart = Restart(
        interpreter=(str(python), "-m", "dbsp.coordinator.serve"),
        arguments=(str(settings_file), *(f"--set={each}" for each in ON_HOSTS)),
    )
    return service.upgrade(60)


@pytest.mark.skipif(not in_turn(0, 2), reason="the turn of the next test at this commit; `make soak` runs both")
def test_an_upgrade_is_proved_over_copies(service: Service, machines: Machines, installed: Installations) -> None:
    """The whole way: a process of the other version reads the copies."""
    last = service.snapshot.step
    proof = upgrade(service, installed.python("0.9.2", SERVING + indented(APART))).proof
    assert proof is not None
    assert (proof.left_out, proof.last, proof.rows > 0, proof.copied_bytes > 0) == ("", last, True, True)
    assert all(contents(machines.folder / host) for host in "ab")


@pytest.mark.skipif(not in_turn(1, 2), reason="the turn of the test before at this commit; `make soak` runs both")
def test_an_upgrade_to_a_version_with_other_outputs_is_refused(service: Service, installed: Installations) -> None:
    python = installed.python("0.9.2", SERVING + indented(APART + LOSES_A_ROW))
    with pytest.raises(EngineError, match=r"this version gives other outputs: version=0\.9\.2 (?s:.*)views=per_name"):
        upgrade(service, python)
    assert not copies_home(service.config.data_dir).exists()
    put(service, random.Random(5), 10)
