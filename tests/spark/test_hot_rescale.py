"""Keys move hot on Spark as in one process: the same bytes at every step, and the changes of a run that never rescales."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

import dbsp
from dbsp.circuit.circuit import Circuit
from dbsp.distribute.commands import to_text
from dbsp.distribute.migration_plan import MigrationPlan
from dbsp.distribute.names import STRATEGIES
from dbsp.io.embedded_output import read_outputs
from dbsp.layout import Layout, rescaled
from dbsp.logs import StepRecord
from dbsp.runtime.runtime import StepReport
from tests.pace import rotating
from tests.spark.pipelines import MakeRuntime, Open, Pipeline, push_some
from tests.spark.wrapped_resources import KillingResources

pytestmark = pytest.mark.spark


@dataclass
class HotPipeline(Pipeline):
    """A pipeline whose keys move while its steps go on."""

    migration_plan: MigrationPlan | None = None
    ways: list[tuple[Layout, Layout | None]] = field(default_factory=list)

    def next_record(self) -> StepRecord:
        record = super().next_record()
        return (
            record
            if self.migration_plan is None
            else replace(record, commands=(to_text(self.migration_plan.command(self.step)),))
        )

    def run_step(self, record: StepRecord | None = None) -> StepReport:
        record, again = record or self.next_record(), self.step < len(self.ways)
        if record.step == len(self.records):
            self.steps.append(record)
            self.records.append(record)
            self.ways.append(
                (self.layout, None)
                if self.migration_plan is None
                else (self.migration_plan.old, self.migration_plan.new)
            )
            again = False
        report = self.runtime.run_step(record, *self.ways[record.step])
        self.done.update({(r.table, r.partition): r.last for r in record.ranges})
        self.step = record.step + 1
        if not again and self.migration_plan is not None and report.migration is not None:
            self.go_on(self.migration_plan, report.migration.over)
        return report

    def go_on(self, migration_plan: MigrationPlan, over: bool) -> None:
        if not over:
            return
        left = [worker for worker in migration_plan.layout.workers if worker not in migration_plan.new.workers]
        self.migration_plan, self.layout = None, migration_plan.new
        self.checkpoint()
        self.runtime.discard(left)

    def begin_hot(self, workers: int, strategy: str, budget: int) -> None:
        new = rescaled(self.layout, workers, step=self.step)
        migration_plan = MigrationPlan.towards(new, self.layout, strategy=strategy, first=self.step, budget=budget)
        self.slice_into(migration_plan.layout)
        self.migration_plan = migration_plan

    def cancel_hot(self) -> None:
        assert self.migration_plan is not None
        self.migration_plan = self.migration_plan.turned_round(self.step)
        self.layout = self.migration_plan.layout

    def hurry(self) -> None:
        """All keys that are left move in the next step."""
        assert self.migration_plan is not None
        self.migration_plan = replace(self.migration_plan, budget=1000)

    def changes(self) -> dict[tuple[str, int], Counter[Any]]:
        """What every step changed in every view, summed over the workers."""
        found: dict[tuple[str, int], Counter[Any]] = {}
        for view in self.plan.views:
            for step, _, table in read_outputs(self.folder, view.name):
                rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
                for *row, weight in rows:
                    found.setdefault((view.name, step), Counter())[tuple(row)] += weight
        return {place: Counter({row: n for row, n in rows.items() if n}) for place, rows in found.items()}


Feed = Callable[[Pipeline], None]


def orders(pipeline: Pipeline) -> None:
    push_some(pipeline, 1, 8)
    pipeline.run_step()


def paths_circuit() -> Circuit:
    """Paths of a few nodes: an exchange in the loop, and a group over the answer."""
    edges = dbsp.table("edges", {"a": dbsp.INT64, "b": dbsp.INT64})
    paths = dbsp.recursive(
        edges, lambda so_far: so_far.join(edges.rename({"a": "b", "b": "c"}), on="b").select("a", b="c")
    )
    return dbsp.circuit("paths", {"paths": paths, "reach": paths.group_by("a").aggregate(n=dbsp.count())})


def edges(pipeline: Pipeline) -> None:
    """Edges of a line come and go, so that many keys have state and few rounds are needed."""
    now = pipeline.step
    pipeline.push("edges", [(10 * now + n, 10 * now + n + 1) for n in range(4)], partition=now % 4)
    pipeline.push("edges", [(10 * (now - 1) + 2, 10 * (now - 1) + 3)], operation=1, partition=(now + 1) % 4)
    pipeline.run_step()


def again(pipeline: HotPipeline) -> None:
    """The last step once more, as it was; then back to the last version, and all steps since."""
    pipeline.run_step(pipeline.records[-1])
    pipeline.new_epoch()


def life(pipeline: HotPipeline, feed: Feed, strategy: str) -> None:
    """1, 2, 3 and 1 workers, with a version in the midst of it, steps run again, and one migration that turns round."""
    feed(pipeline)
    for workers in (2, 3, 1):
        pipeline.begin_hot(workers, strategy, budget=3)
        for _ in range(3):
            feed(pipeline)
        if workers == 2:
            again(pipeline)
        if workers == 3:
            pipeline.checkpoint()
            pipeline.cancel_hot()
            feed(pipeline)
        if workers == 1:
            pipeline.checkpoint()
            pipeline.new_epoch()
        pipeline.hurry()
        while pipeline.migration_plan is not None:
            feed(pipeline)
    assert pipeline.layout.workers == (0,)
    feed(pipeline)


@pytest.mark.parametrize("strategy", rotating(list(STRATEGIES), 2))
def test_the_bytes_are_those_of_one_process(strategy: str, on_spark: MakeRuntime, opened: Open, tmp_path: Path) -> None:
    one, other = (
        opened(tmp_path / name, make, kind=HotPipeline, workers=1)
        for name, make in (("a", Pipeline.make_runtime), ("b", on_spark))
    )
    for pipeline in (one, other):
        life(pipeline, orders, strategy)
    assert [record.commands for record in other.records] == [record.commands for record in one.records]
    assert other.outputs() == one.outputs()
    assert other.views() == one.views()
    still = opened(tmp_path / "c")
    while still.step < other.step:
        orders(still)
    assert other.changes() == still_changes(still)
    assert len({worker for _, worker, _ in read_outputs(other.folder, "doubled")}) == 3


def still_changes(pipeline: Pipeline) -> Any:
    return HotPipeline.changes(pipeline)  # type: ignore[arg-type]


def test_a_recursion_goes_on_while_its_keys_move(on_spark: MakeRuntime, opened: Open, tmp_path: Path) -> None:
    still = opened(tmp_path / "c", circuit=paths_circuit())
    other = opened(tmp_path / "b", on_spark, kind=HotPipeline, circuit=paths_circuit())
    edges(other)
    other.begin_hot(3, "icadd", budget=3)
    for _ in range(3):
        edges(other)
    other.cancel_hot()
    edges(other)
    other.hurry()
    while other.migration_plan is not None:
        edges(other)
    while still.step < other.step:
        edges(still)
    assert other.changes() == still_changes(still)
    assert other.views() == still.views()


@pytest.mark.parametrize("point", rotating(["segment 1 begins", "after writing"], 2))
def test_a_python_worker_killed_while_keys_move_changes_nothing(
    point: str, on_spark: MakeRuntime, opened: Open, tmp_path: Path
) -> None:
    mark = tmp_path / "killed"
    one = opened(tmp_path / "a", kind=HotPipeline)
    other = opened(
        tmp_path / "b",
        on_spark,
        kind=HotPipeline,
        wrap_resources=lambda resources: KillingResources(resources, mark, point, 1, 2),
    )
    for pipeline in (one, other):
        orders(pipeline)
        pipeline.begin_hot(1, "redistribute", 40)
        while pipeline.migration_plan is not None:
            orders(pipeline)
    assert mark.exists()
    assert one.records[2].commands == ("migrate strategy=redistribute phase=move budget=40",)
    assert other.outputs() == one.outputs()
    assert other.views() == one.views()
