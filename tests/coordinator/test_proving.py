"""Finished steps run again in memory: equal outputs are proved, others are refused, and nothing of the pipeline changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dbsp.coordinator.service import Service
from dbsp.coordinator.settings.config import Config
from dbsp.coordinator.takeover import proving
from dbsp.coordinator.takeover.proving import NO_STEPS, OTHER_HOSTS, Proof, prove
from dbsp.errors import DataError, EngineError
from dbsp.io.embedded_input import EmbeddedInputLog
from dbsp.logs import Range
from dbsp.operators.groups.group_by import GroupByOperator
from tests.coordinator.shop import ORDERS, settings
from tests.coordinator.test_upgrade import ask, contents, indented, per_customer, push
from tests.coordinator.versions import Installations

SERVING = "import sys\nif 'dbsp.coordinator.serve' in ' '.join(sys.orig_argv):\n"
LOSES_A_ROW = """
from dbsp.operators.groups.group_by import GroupByOperator
right = GroupByOperator.step
def wrong(self, context, state, inputs):
    found = right(self, context, state, inputs)
    return found.slice(0, max(0, len(found) - 1))
GroupByOperator.step = wrong
"""


def put(service: Service, *rows: tuple[int, str, int]) -> None:
    """A step with these rows."""
    ids, customers, amounts = zip(*rows, strict=True)
    table = pa.table({"id": ids, "customer": customers, "amount": amounts})
    service.wait_until_processed(service.push("orders", table))


@pytest.fixture
def config(shop: Path) -> Config:
    return settings(shop)


@pytest.fixture
def service(config: Config) -> Iterator[Service]:
    with Service(config) as made:
        yield made


def proved(config: Config) -> tuple[int, int, int]:
    found = prove(config)
    return found.first, found.last, found.rows


def test_the_steps_after_the_oldest_checkpoint_are_proved_whatever_came_between(
    config: Config, service: Service
) -> None:
    assert replace(prove(config), seconds=0.0) == Proof(left_out=NO_STEPS)
    put(service, (1, "a", 10), (2, "b", 600), (3, "b", 1))
    assert proved(config) == (0, 1, 3)
    service.checkpoint()
    put(service, (2, "b", 5), (4, "c", 7))
    assert proved(config) == (1, 2, 2), "over the state of the checkpoint: a row is replaced"
    service.checkpoint()
    assert proved(config) == (1, 2, 2), "after a checkpoint there are those before it"
    put(service, (5, "a", 900))
    assert proved(config) == (1, 3, 3), "over a checkpoint"
    service.rescale(3)
    put(service, (1, "b", 1))
    assert proved(config) == (3, 4, 1), "in the new layout"
    service.stop()
    assert proved(config) == (3, 4, 1), "of a stopped pipeline"


def test_other_outputs_are_refused_with_step_and_view(
    config: Config, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(service, (1, "a", 10), (2, "b", 600))
    put(service, (3, "c", 10), (4, "d", 600))
    right, calls = GroupByOperator.step, 0

    def wrong(self: GroupByOperator, *given: Any) -> Any:
        nonlocal calls
        calls += 1
        found = right(self, *given)
        return found.slice(0, 0) if calls > config.pipeline.workers else found

    monkeypatch.setattr(GroupByOperator, "step", wrong)
    with pytest.raises(EngineError, match=r"gives other outputs: .* step=1 .*views=per_customer") as refused:
        prove(config)
    assert "stop the service and start the other version" in str(refused.value.hint)


def test_a_step_that_fails_is_refused(config: Config, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    put(service, (1, "a", 10))

    def broken(*_: Any) -> Any:
        raise ZeroDivisionError("no such group")

    monkeypatch.setattr(GroupByOperator, "step", broken)
    with pytest.raises(
        EngineError, match=r"fails at a step that was run before: .* step=0: .*ZeroDivisionError: no such group"
    ):
        prove(config)


def test_nothing_is_changed(config: Config, service: Service) -> None:
    put(service, (1, "a", 10), (2, "b", 600))
    service.checkpoint()
    put(service, (1, "b", 10))
    before = contents(config.data_dir)
    assert prove(config).rows == 1
    assert contents(config.data_dir) == before


def test_rows_and_seconds_are_bounded(config: Config, service: Service) -> None:
    for number in range(3):
        put(service, (2 * number, "a", 1), (2 * number + 1, "b", 1))
    few = prove(config, rows_max=4)
    assert (few.last, few.rows, few.left_out) == (2, 4, "rows_max=4")
    late = prove(config, seconds_max=0.0)
    assert (late.last, late.rows, late.left_out) == (0, 0, "seconds_max=0")


def test_logs_that_are_trimmed_meanwhile_are_read_anew(
    config: Config, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(service, (1, "a", 10))
    service.checkpoint()
    put(service, (2, "a", 10))
    service.checkpoint()
    put(service, (3, "a", 10), (4, "a", 10))
    read, often = EmbeddedInputLog.read, 0

    def trimmed(self: EmbeddedInputLog, range_: Range, step: int) -> Sequence[Any]:
        nonlocal often
        if step == 1 and not often:
            often += 1
            service.checkpoint()  # the running version drops what is about to be read
        return read(self, range_, step)

    monkeypatch.setattr(EmbeddedInputLog, "read", trimmed)
    assert (often, proved(config), often) == (0, (2, 3, 2), 1)
    put(service, (5, "a", 10))

    def gone(self: EmbeddedInputLog, range_: Range, step: int) -> Sequence[Any]:
        raise DataError("input rows are trimmed")

    monkeypatch.setattr(EmbeddedInputLog, "read", gone)
    assert prove(config).left_out == "the logs were trimmed meanwhile: input rows are trimmed"


def test_what_cannot_be_proved_is_said(
    config: Config, service: Service, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(service, (1, "a", 10))
    monkeypatch.setattr(proving, "shares_disk", lambda _: False)
    assert prove(config).left_out == OTHER_HOSTS
    assert prove(settings(folder, f"pipeline.data_dir={folder / 'nowhere'}")).left_out == NO_STEPS


def test_files_are_compared_as_well(shop: Path) -> None:
    config = settings(shop, "output.kind=files")
    with Service(config) as service:
        put(service, (1, "a", 10), (2, "b", 600))
        assert proved(config) == (0, 1, 2)


def test_an_upgrade_to_a_version_with_other_outputs_is_refused(shop: Path, installed: Installations) -> None:
    with installed.serving(shop):
        push(shop, *ORDERS.to_pylist())
        other = installed.python("0.9.2", SERVING + indented(LOSES_A_ROW))
        done = installed.run("cli", "upgrade", "--python", str(other), folder=shop)
        assert done.returncode == 7, done.stderr
        assert "this version gives other outputs: version=0.9.2" in done.stderr
        assert "views=per_customer" in done.stderr
        assert ask(shop, "GET", "/v1/status")["engine"] == "0.9.1"
        push(shop, {"id": 9, "customer": "c", "amount": 1})
        assert per_customer(shop) == [["a", 1, 10], ["b", 2, 601], ["c", 1, 1]]
