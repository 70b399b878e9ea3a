"""What an operator is: a frozen value that turns the changes of its inputs into the change of its output.

The executor (`dbsp.step`) gives it the changes of one step and its own traces as of the step before; whatever it appends
to a trace is seen from the next step on. An operator keeps nothing itself, so it is a pure function of these.

Invariants:
1. Output and appended batches depend on (context, state, inputs) alone: no clock, no randomness, no order of arrival.
2. An input may be loose (any order, repeats, zero weights), and so may the output.
3. An operator is picklable, and equal to another one that computes the same.

Source: docs/concepts/circuits.md.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from dbsp.horizon import Bound, Horizon
from dbsp.timing import Signal, Waterline
from dbsp.trace.floor import Floor
from dbsp.trace.spine import Spine
from dbsp.zset.batch import Batch
from dbsp.zset.schema import Arrangement, Schema


class State(Protocol):
    """What a node may touch of the store in one step."""

    def spine(self, index: int) -> Spine:
        """The node's index-th trace as of the step before."""
        ...

    def floor(self, index: int) -> Floor | None:
        """Rows of the trace below it are closed by a waterline: which of them, and of their retractions, are there is chance."""
        ...

    def append(self, index: int, batch: Batch, floor: Floor | None = None) -> None:
        """Add a batch, arranged as the trace is; seen from the next step on; at most once per trace and step.

        Rows below the floor are needed no more from then on. Where the trace is another node's, that one adds the same batch.
        """
        ...


@dataclass(frozen=True, slots=True)
class Failure:
    """A row that could not be used: its content as JSON, why, and with which weight it came."""

    payload: str
    reason: str
    weight: int
    late: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StepContext:
    """What a step is to an operator; failures of rows and signals for the steps to come are collected here.

    Where columns of the input that nobody needs were left unread, `whole` reads its rows with all of them, to show some.
    """

    step: int
    clock_us: int
    error_policy: str = "dead-letter"
    failures: list[Failure] = field(default_factory=list)
    clock_before_us: int | None = None
    waterlines: tuple[Waterline, ...] = ()
    signals: list[Signal] = field(default_factory=list)
    whole: Callable[[], Batch] | None = None

    def fail(self, payload: str, reason: str, weight: int) -> None:
        """Note a row that leaves the stream."""
        self.failures.append(Failure(payload, reason, weight))

    def late(self, payload: str, reason: str, weight: int) -> None:
        """Note a row that came too late: it leaves the stream under every error policy."""
        self.failures.append(Failure(payload, reason, weight, late=True))

    def signal(self, node: int, kind: str, at_us: int) -> None:
        """Say something to whoever decides about the steps to come."""
        self.signals.append(Signal(node=node, kind=kind, at_us=at_us))

    def waterline(self, node: int) -> Waterline | None:
        """The waterline of a watermark, once there is one."""
        return next((line for line in self.waterlines if line.node == node), None)


OUTPUT = -1
"""The number of an operator's own output, where inputs are counted from 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Integral:
    """A trace that is nothing but the sum of all rows of one stream: an input, or the `OUTPUT`.

    Rows with a null in one of the columns `present` are left out; `only` says that the operator has no other use for them.
    Equal ones are kept once, by the node that asks first, and read by all (design record 0013).
    """

    stream: int
    present: tuple[str, ...] = ()
    only: bool = True

    def left_out(self, schema: Schema) -> frozenset[str]:
        """The columns whose nulls keep rows out; a column that holds none says nothing."""
        return frozenset(name for name in self.present if schema[name].nullable)


class Shows(Protocol):
    """An operator whose first trace says all about its answer, so that a view of it needs no trace of its own."""

    def shown(self, kept: Batch, error_policy: str) -> Batch:
        """The answer, out of the rows of the first trace, arranged."""
        ...


@dataclass(frozen=True, slots=True)
class AsKept:
    """A trace that holds the rows of the answer as they are."""

    def shown(self, kept: Batch, error_policy: str) -> Batch:  # noqa: ARG002 (protocol)
        """These rows."""
        return kept


class Operator(ABC):
    """One kind of physical node; a frozen, picklable dataclass. `str(operator)` says what it does in a few words."""

    __slots__ = ()

    def arrangements(self) -> tuple[Arrangement, ...]:
        """How its traces are arranged, by index; none unless it keeps something."""
        return ()

    def integrals(self) -> tuple[Integral | None, ...]:
        """For each trace the stream it is the sum of; None, or nothing, for what is made of several or by the operator."""
        return ()

    @abstractmethod
    def step(self, context: StepContext, state: State, inputs: tuple[Batch, ...]) -> Batch:
        """The change of the output for the changes of the inputs."""

    @abstractmethod
    def __str__(self) -> str:
        """What it does, in a few words."""

    def shows(self) -> Shows | None:
        """Itself, if its first trace says all about its answer."""
        return None

    def horizon(self, inputs: Sequence[Horizon]) -> Horizon:  # noqa: ARG002 (for others to use)
        """Bounds below which the output never changes again, where the inputs never change below theirs."""
        return {}

    def closing(self, inputs: Sequence[Horizon]) -> tuple[tuple[str, Bound] | None, ...]:  # noqa: ARG002 (for others to use)
        """For each trace a column, and the bound below which its rows are never read again; nothing if that is not known."""
        return ()
