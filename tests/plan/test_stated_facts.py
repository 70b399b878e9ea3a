"""An operator states the facts that the rest of the project asks for, or its definition fails."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pytest

import dbsp
from dbsp.circuit.nodes import STATED as NODE_STATED
from dbsp.circuit.nodes import Node
from dbsp.diagnostics.source_lines import SourceLine
from dbsp.errors import CircuitError, InternalError
from dbsp.operators.operator import STATED, Operator, State, StepContext, Time
from dbsp.plan.backfill import depends_on_time
from dbsp.plan.builder import Flow
from dbsp.plan.planner import plan
from dbsp.stored import stored
from dbsp.stream.stream import Stream
from dbsp.zset.arrays import from_values
from dbsp.zset.batch import Batch, arrange, concat
from dbsp.zset.schema import INT64, Arrangement, Column, Schema

if TYPE_CHECKING:
    from dbsp.circuit.nodes import Planning

ROWS = Schema.of({"k": INT64})
STAMPED = Schema((*ROWS.columns, Column("at", INT64)))


@stored("Stamped", "input schema")
@dataclass(frozen=True, slots=True, kw_only=True)
class StampedOperator(Operator):
    """Keep the inserted rows, and add the clock of their step: a new stateful operator that reads the clock."""

    depends_on_time: ClassVar[Time] = Time.CLOCK
    input: Schema
    schema: Schema

    def __str__(self) -> str:
        return "stamped"

    def arrangements(self) -> tuple[Arrangement, ...]:
        return (Arrangement(schema=self.schema, key=("k",)),)

    def step(self, context: StepContext, state: State, inputs: tuple[Batch, ...]) -> Batch:
        rows = concat([inputs[0]], self.input)
        if not len(rows):
            return Batch.empty(self.schema)
        clock = from_values(np.full(len(rows), context.clock_us, np.int64), INT64)
        made = Batch(schema=self.schema, columns=(*rows.columns, clock), weights=rows.weights)
        state.append(0, arrange(made, self.arrangements()[0]))
        return made


@stored("StampedRows")
@dataclass(frozen=True, slots=True, kw_only=True)
class StampedRows(Node):
    """The logical node of the operator."""

    input: Node
    schema: Schema
    source: SourceLine | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return "stamped"

    def carried(self, side: int, name: str) -> frozenset[str]:
        return frozenset([name])

    def plan(self, planning: Planning) -> Flow:
        flow = planning.input(self.input).pick(self.input.schema.names)
        flow = planning.builder.distribute(flow, ("k",), self.source)
        operator = StampedOperator(input=self.input.schema, schema=self.schema)
        made = planning.builder.add("stamped", operator, (flow.node,), self.schema, self.source)
        return Flow(node=made, schema=self.schema, distribution=("k",))


T = dbsp.table("t", ROWS)
OLD = dbsp.circuit("stamps", {"all": T})
NEW = dbsp.circuit("stamps", {"all": T, "stamped": Stream(StampedRows(input=T.node, schema=STAMPED))})


def changed() -> Any:
    """Return the run of a circuit to which a view with the new operator is added after a step."""
    with dbsp.open(OLD) as run:
        run.push("t", [{"k": 1}])
        run.step()
        return run.evolve(NEW)


@pytest.mark.parametrize("fact", STATED)
def test_an_operator_without_a_fact_is_not_defined(fact: str) -> None:
    facts = {name: getattr(StampedOperator, name) for name in STATED if name != fact}
    with pytest.raises(InternalError, match=f"class=Silent missing=.*{fact}"):
        type("Silent", (Operator,), {"__slots__": (), **facts})
    type("Silent", (Operator,), {"__slots__": (), **facts, fact: getattr(StampedOperator, fact)})


def test_a_new_operator_that_reads_the_clock_is_not_filled() -> None:
    with pytest.raises(CircuitError, match=r"depends on when rows arrived .*node=stamped"):
        changed()


def test_an_operator_that_reads_the_clock_and_denies_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted bug: the operator says that time does not matter, so the backfill accepts the view."""
    monkeypatch.setattr(StampedOperator, "depends_on_time", Time.NOTHING)
    assert not any(map(depends_on_time, plan(NEW).nodes))
    with pytest.raises(InternalError, match=r"reads=the clock says=nothing.*node=stamped"):
        changed()


@pytest.mark.parametrize("says", Time)
def test_an_operator_sees_of_the_time_what_it_depends_on(says: Time) -> None:
    context, seen = StepContext(number=3, depends_on=says), set[Time]()
    reads = {Time.STEPS: "step", Time.CLOCK: "clock_us", Time.WATERLINES: "waterlines"}
    for time, name in reads.items():
        try:
            getattr(context, name)
            seen.add(time)
        except InternalError:
            pass
    assert seen == {says} - {Time.NOTHING}


@pytest.mark.parametrize("fact", NODE_STATED)
def test_a_node_without_a_fact_is_not_defined(fact: str) -> None:
    facts = {name: getattr(StampedRows, name) for name in NODE_STATED if name != fact}
    with pytest.raises(InternalError, match=f"class=Silent missing=.*{fact}"):
        type("Silent", (Node,), {"__slots__": (), **facts})
    type("Silent", (Node,), {"__slots__": (), **facts, fact: getattr(StampedRows, fact)})


def test_a_new_node_is_refused_inside_a_recursion() -> None:
    with pytest.raises(CircuitError, match="StampedRows cannot be inside a recursion: node=stamped"):
        dbsp.recursive(T, lambda rows: Stream(StampedRows(input=rows.node, schema=STAMPED)).select("k"))
