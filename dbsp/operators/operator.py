"""What an operator is: a frozen value that turns the changes of its inputs into the change of its output.

The executor (`dbsp.steps.segment`) gives it the changes of one step and its own traces as of the step before; whatever it appends
to a trace is seen from the next step on. An operator keeps nothing itself, so it is a pure function of these.

Invariants:
1. Output and appended batches depend on (context, state, inputs) alone: no clock, no randomness, no order of arrival.
2. An input may be loose (any order, repeats, zero weights), and so may the output.
3. An operator is picklable, and equal to another one that computes the same.

Source: docs/concepts/circuits.md.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from dbsp.errors import InternalError
from dbsp.operators.monotone_bounds import Bound, MonotoneBounds
from dbsp.steps.timing import Moment, Signal, Waterline
from dbsp.trace.retention import RetentionBound
from dbsp.trace.spine import Spine
from dbsp.zset.batch import Batch
from dbsp.zset.schema import Arrangement, Schema


class Time(enum.Enum):
    """What of a step's time decides an operator's answer."""

    NOTHING = "nothing"
    STEPS = "how rows are split into steps"
    WATERLINES = "waterlines"
    CLOCK = "the clock"


NO_TIME = Moment(clock_us=0)


class State(Protocol):
    """What a node may touch of the store in one step."""

    def spine(self, index: int) -> Spine:
        """The node's index-th trace as of the step before."""
        ...

    def retention_bound(self, index: int) -> RetentionBound | None:
        """Rows of the trace below it are closed by a waterline: which of them, and of their retractions, are there is chance."""
        ...

    def append(self, index: int, batch: Batch, retention: RetentionBound | None = None) -> None:
        """Add a batch, arranged as the trace is; seen from the next step on; at most once per trace and step.

        Rows below the retention bound are needed no more from then on. Where the trace is another node's, that one adds the
        same batch.
        """
        ...


@dataclass(frozen=True, slots=True)
class RowFailure:
    """A row that could not be used: its content as JSON, why, and with which weight it came."""

    payload: str
    reason: str
    weight: int
    late: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StepContext:
    """The step that an operator takes; failures of rows and signals for later steps are collected here.

    `number` is the step's number, and `moment` its time, of which the operator reads only what it `depends_on`.
    Where columns of the input that nobody needs were left unread, `whole` reads its rows with all of them, to show some.
    """

    number: int
    moment: Moment = NO_TIME
    depends_on: Time = Time.NOTHING
    error_policy: str = "dead-letter"
    failures: list[RowFailure] = field(default_factory=list)
    signals: list[Signal] = field(default_factory=list)
    whole: Callable[[], Batch] | None = None

    @property
    def step(self) -> int:
        """Return the number of the step, for an operator that depends on the steps."""
        self._timed(Time.STEPS)
        return self.number

    @property
    def clock_us(self) -> int:
        """Return what `now()` shows, for an operator that depends on the clock."""
        return self._timed(Time.CLOCK).clock_us

    @property
    def clock_before_us(self) -> int | None:
        """Return what `now()` showed in the step before, for an operator that depends on the clock."""
        return self._timed(Time.CLOCK).clock_before_us

    @property
    def waterlines(self) -> tuple[Waterline, ...]:
        """Return the waterlines, for an operator that depends on them."""
        return self._timed(Time.WATERLINES).waterlines

    def _timed(self, needed: Time) -> Moment:
        if self.depends_on is not needed:
            raise InternalError(
                f"an operator reads of the time what its depends_on_time does not say: reads={needed.value}"
                f" says={self.depends_on.value}"
            )
        return self.moment

    def fail(self, payload: str, reason: str, weight: int) -> None:
        """Note a row that leaves the stream."""
        self.failures.append(RowFailure(payload, reason, weight))

    def late(self, payload: str, reason: str, weight: int) -> None:
        """Note a row that came too late: it leaves the stream under every error policy."""
        self.failures.append(RowFailure(payload, reason, weight, late=True))

    def signal(self, node: int, kind: str, at_us: int) -> None:
        """Say something to whoever decides about the steps to come."""
        self.signals.append(Signal(node=node, kind=kind, at_us=at_us))

    def waterline(self, node: int) -> Waterline | None:
        """The waterline of a watermark, once there is one."""
        return self._timed(Time.WATERLINES).waterline(node)


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


class SignatureParts(Protocol):
    """What a node's signature is made of."""

    @property
    def inputs(self) -> Sequence[str]:
        """Return the signatures of the inputs."""
        ...

    def hashed(self, *parts: str) -> str:
        """Return the hash of these texts."""
        ...

    def text(self, value: Any) -> str:
        """Return the canonical text of a parameter, with watermarks under their signatures."""
        ...

    def table(self, name: str) -> str:
        """Return the signature of a table's rows as they are pushed."""
        ...

    def received(self) -> str:
        """Return the signature of the rows that an exchange brings to the node."""
        ...

    def whole(self, operator: Operator, text: str | None = None) -> str:
        """Return the signature of the node's schemas, what it lets go, and all stored fields of the operator, or `text`."""
        ...


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


STATED = ("depends_on_time", "step", "__str__")
"""The facts that every operator states."""


class Operator(ABC):
    """One kind of physical node; a frozen, picklable dataclass. `str(operator)` says what it does in a few words.

    The rest of the project asks an operator for its facts, and knows no kinds of operators. A fact has a default only where
    the default is right for every operator, if perhaps slow. The other facts every operator states, or its definition fails.
    """

    __slots__ = ()

    depends_on_time: ClassVar[Time]
    """What decides the answer besides the sums of the inputs' rows; `StepContext` shows the operator nothing else of the time.

    An operator that depends on time never runs in a backfill, which gives the whole past of the inputs in one step.
    """

    def __init_subclass__(cls, **keywords: Any) -> None:
        """Refuse a class that leaves one of the facts unsaid."""
        super().__init_subclass__(**keywords)
        unsaid = [
            name for name in STATED if getattr(getattr(cls, name, None), "__isabstractmethod__", not hasattr(cls, name))
        ]
        if unsaid:
            raise InternalError(
                f"an operator does not say everything about itself: class={cls.__name__} missing={unsaid}"
            )

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

    def monotone_bounds(self, inputs: Sequence[MonotoneBounds]) -> MonotoneBounds:  # noqa: ARG002 (for others to use)
        """Bounds below which the output never changes again, where the inputs never change below theirs."""
        return {}

    def closing(self, inputs: Sequence[MonotoneBounds]) -> tuple[tuple[str, Bound] | None, ...]:  # noqa: ARG002 (for others to use)
        """For each trace a column, and the bound below which its rows are never read again; nothing if that is not known."""
        return ()

    def reads_table(self) -> str | None:
        """Return the table whose changes the operator hands on; None for an operator that reads other operators."""
        return None

    def whole_past(self) -> Batch | None:
        """Return the sum of all rows that the operator ever gives, if no input decides it; None otherwise."""
        return None

    def keeps_table(self) -> bool:
        """Return whether the first trace holds the rows of a table by its primary key."""
        return False

    def only_adds(self, inputs: Sequence[bool]) -> bool:  # noqa: ARG002 (for others to use)
        """Return whether no row ever leaves the answer, where `inputs` says this of each input."""
        return False

    def hands_on_rows(self) -> bool:
        """Return whether each row of the output is a row of the input, with columns picked at most."""
        return False

    def columns_read(self) -> frozenset[str] | None:
        """Return the columns of the input that the operator reads; None for all of them."""
        return None

    def signature(self, given: SignatureParts) -> str:
        """Return the signature of a node with this operator: equal signatures have equal answers for equal inputs.

        The default tells all stored fields apart, so it is right for every operator. An operator whose answer does not
        depend on some of them returns a text without these, so that more of the state survives a change of the circuit.
        """
        return given.whole(self)
