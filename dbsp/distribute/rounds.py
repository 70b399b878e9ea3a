"""Run a step of all workers' distributors: rounds of messages, until no distributor has anything left to send.

In the engine all workers enter a phase in the same step, and messages sent in one round arrive in the next round. States
are handled first, then rows, then all other messages, each in the order of the senders. At the end of a step no row is in
transit or stored, and no key is on hold. So a version between two steps contains distributors at rest.

The outcome of a round depends only on the state before the step, its commands and its rows. So a replay has the same
outcome (invariant 3). This module does not see states and rows; each worker's `Host` acts for its operators.

Source: docs/concepts/rescale.md; design record 0015.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

from dbsp.distribute.distributor import Distributor
from dbsp.distribute.keys import Keys, Numbers
from dbsp.distribute.messages import (
    Acquire,
    Collect,
    Downstream,
    Drop,
    Event,
    FinishedMessage,
    Interrogate,
    Pass,
    Received,
    RowsMessage,
    Send,
    Take,
)
from dbsp.errors import InternalError

ROUNDS_MAX = 64
"""Limit of rounds in a step. Either strategy needs about ten at most, so more means that a row is sent around for ever."""

D = TypeVar("D", bound=Distributor)


class Host(Protocol):
    """A worker's operators downstream of its distributor."""

    def ordered(self, order: Downstream) -> Sequence[Event]:
        """Carry out an order to the operators, and return their replies, if there are any."""
        ...

    def passed(self, keys: Keys, rows: Numbers) -> None:
        """Process rows."""
        ...


def work_off(distributor: D, host: Host, events: Iterable[Event]) -> tuple[D, list[Send], list[FinishedMessage]]:
    """Handle events in order, each with all replies of the operators.

    Return the distributor, the messages to send, and the notices that the migration is over.

    **Errors** `InternalError` for a message to the worker itself: there is no link for it.
    """
    sends: list[Send] = []
    over: list[FinishedMessage] = []
    for event in events:
        distributor, wanted = distributor.handle(event)
        for out in wanted:
            match out:
                case Send(to=to):
                    if to == distributor.worker:
                        raise InternalError(f"a distributor sends to itself: worker={to} message={out.message}")
                    sends.append(out)
                case Pass(keys=keys, rows=rows):
                    host.passed(keys, rows)
                case FinishedMessage():
                    over.append(out)
                case Interrogate() | Collect() | Take() | Drop():
                    distributor, more, ended = work_off(distributor, host, host.ordered(out))
                    sends += more
                    over += ended
    return distributor, sends, over


def in_order(received: Iterable[Received]) -> list[Received]:
    """Return the arrivals of one round in the order of handling: states, rows, all else; by sender; as sent.

    A parcel contains its rows as one batch, separate from its messages, so their relative order is unknown. States are
    first, because no row may be processed without its state. Other messages are last, because FINAL promises that no
    further rows follow.
    """
    return sorted(received, key=lambda arrived: (_rank(arrived), arrived.sender))


def _rank(arrived: Received) -> int:
    match arrived.message:
        case Acquire():
            return 0
        case RowsMessage():
            return 1
        case _:
            return 2


def run_rounds(
    distributors: Mapping[int, D], hosts: Mapping[int, Host], events: Mapping[int, Sequence[Event]]
) -> tuple[dict[int, D], int]:
    """Run all rounds of one step, from the events at its start; return the distributors at rest, and the number of rounds.

    **Errors** `InternalError` if a row circulates for ever, or a row or key waits at the end of the step.
    """
    now = dict(distributors)
    waiting: Mapping[int, Sequence[Event]] = events
    rounds = 0
    while any(waiting.values()):
        if rounds == ROUNDS_MAX:
            raise InternalError(f"a step's rounds do not end: rounds_max={ROUNDS_MAX}")
        arrived: dict[int, list[Received]] = {}
        for worker in sorted(waiting):
            now[worker], sends, _ = work_off(now[worker], hosts[worker], waiting[worker])
            for send in sends:
                received = Received(sender=worker, message=send.message, region=send.region)
                arrived.setdefault(send.to, []).append(received)
        waiting = {worker: in_order(received) for worker, received in arrived.items()}
        rounds += 1
    restless = [worker for worker, distributor in now.items() if not distributor.at_rest]
    if restless:
        raise InternalError(f"keys are on hold or rows stored at the end of a step: workers={restless}")
    return now, rounds
