"""Fault 14: the network between driver and executors is cut in a step, one way or both ways, and healed later.

No step ends without all its workers; the coordinator takes a long silence for an outage, rolls back, and goes on after the heal;
of a short one it notices nothing. Every part of every output is that of the golden run, once.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dbsp.coordinator import build
from dbsp.coordinator.service import Service
from dbsp.coordinator.settings.config import Config, load_config
from dbsp.runtime.runtime import Runtime
from dbsp.runtime.work import Work
from tests.pace import in_turn, rotating
from tests.spark.cuts import BOTH_WAYS, TO_DRIVER, TO_EXECUTORS, Network, network
from tests.spark.pipelines import PARTITIONS, Pipeline, as_bytes, in_order, outputs_of, sample_circuit
from tests.spark.waiting import until
from tests.spark.wrapped_resources import HaltingResources

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

CIRCUIT = "from tests.spark.pipelines import sample_circuit\npipeline = sample_circuit()\n"
SETTINGS = """
[pipeline]
circuit = "circuit.py:pipeline"
workers = 2
[spark]
master = "local-cluster[2,1,600]"
[spark.conf]
"spark.executor.memory" = "512m"
"spark.driver.memory" = "512m"
{conf}
[input]
partitions = {partitions}
[step]
failures_max = 50
[checkpoint]
retention_s = 100000
"""
SILENCE_S = 3.0
LAST = "after writing"
"""Here a worker has written its part of the outputs, and nobody knows."""


@dataclass
class Cut:
    """A service whose network can be cut in the midst of a step, and the folder of its logs."""

    service: Service
    network: Network
    resources: HaltingResources
    pushed: int = 0

    def push(self) -> Any:
        """Rows in each partition; where all rows end."""
        first, self.pushed = 1000 * self.pushed, self.pushed + 1
        names = [f"c{n}" for n in range(8)]
        cities = [f"city {(n + self.pushed) % 5}" for n in range(8)]
        self.service.push("customers", pa.table({"customer": names, "city": cities}))
        for partition in range(PARTITIONS):
            at = [first + 100 * partition + n for n in range(20)]
            amounts = [float(n % 90) for n in at]
            rows = pa.table({"id": at, "customer": [f"c{n % 11}" for n in at], "amount": amounts})
            self.service.push("orders", rows, partition=partition)
        return dict(self.service.built.parts.inputs.ends())

    def processed(self, ends: Any) -> None:
        """Wait until all that was pushed so far is."""
        assert self.service.live_status.wait_for(
            lambda now: all(now.processed.get(at, 0) >= end for at, end in ends.items()), 120
        )

    def views(self) -> dict[str, bytes]:
        return {
            view.name: as_bytes(in_order(self.service.read_view(view.name, 120).table))
            for view in self.service.built.plan.views
        }

    @contextmanager
    def impatience(self, silence_s: float) -> Iterator[None]:
        """Jobs of the steps may be silent for so long only; at the start of Spark that would be too short."""
        runtime: Any = self.service._loop.runner.runtime
        before, runtime._jobs._silence_s = runtime._jobs._silence_s, silence_s
        try:
            yield
        finally:
            runtime._jobs._silence_s = before

    def cut_in_a_step(self, point: str, *ways: str) -> tuple[int, Any]:
        """Push, let a worker come to the point, cut the network there, let the worker go on; the step, and the rows' ends."""
        self.resources.arm(point)
        ends = self.push()
        until(self.resources.reached, f"a worker is at {point}")
        self.network.cut(*ways)
        self.resources.release()
        until(lambda: self.network.has_struck(*ways), "something waits at the cut")
        return self.resources.step(), ends


@contextmanager
def cut_service(folder: Path, patch: pytest.MonkeyPatch, **conf: str) -> Iterator[Cut]:
    """A service on executors of their own, behind the network."""
    with network() as between:
        lines = "\n".join(f'"{name}" = "{value}"' for name, value in {**between.conf(), **conf}.items())
        settings = SETTINGS.format(conf=lines, partitions=PARTITIONS)
        (folder / "circuit.py").write_text(CIRCUIT)
        (folder / "pipeline.toml").write_text(settings)
        halting = HaltingResources(None, folder / "halting")
        original = build.make_runtime

        def make_runtime(config: Config, work: Work) -> Runtime:
            return original(config, replace(work, resources=replace(halting, inner=work.resources)))

        patch.setattr(build, "make_runtime", make_runtime)
        with Service(load_config(folder / "pipeline.toml", environment={})) as service:
            try:
                yield Cut(service, between, halting)
            finally:
                between.heal()


def assert_golden(views: dict[str, bytes], folder: Path) -> None:
    """A replay of the step log in one process and without faults gives the same parts, each once, and the same views."""
    golden = folder / "golden"
    for name in ("input", "steps"):
        shutil.copytree(folder / "data" / name, golden / name)
    replay = Pipeline(golden, circuit=sample_circuit())
    try:
        assert outputs_of(folder / "data", replay.plan) == replay.outputs()
        assert views == replay.views()
        assert all(replay.outputs().values())
    finally:
        replay.close()


CUTS = ((LAST, (TO_DRIVER,)), ("segment 1 begins", (TO_EXECUTORS,)), (LAST, BOTH_WAYS))


@pytest.mark.skipif(not in_turn((0, 1, 2), 6), reason="at every second commit; `make soak` runs all cuts")
def test_a_cut_is_waited_for_or_an_outage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with cut_service(tmp_path, monkeypatch) as cut:
        cut.processed(cut.push())
        for point, ways in rotating(CUTS, 6):
            before = cut.service.snapshot.rollbacks
            step, ends = cut.cut_in_a_step(point, *ways)
            assert cut.service.snapshot.step == step
            cut.network.heal()
            cut.processed(ends)
            assert cut.service.snapshot.rollbacks == before, "a short cut is none"
            step, ends = cut.cut_in_a_step(point, *ways)
            with cut.impatience(SILENCE_S):
                assert cut.service.live_status.wait_for(lambda now, before=before: now.rollbacks > before, 60)
                assert cut.service.snapshot.step == step, "no step ends without all its workers"
            cut.network.heal()
            cut.processed(ends)
        cut.processed(cut.push())
        views = cut.views()
    assert_golden(views, tmp_path)
