"""One step of all workers' distributors: rounds of messages until nobody has anything left to say.

In the engine all workers enter a phase in the same step, and what one round sends arrives in the next one: first the states,
then the rows, then all else, each in the order of the senders. So a step has an end: no row is under way, none is stored, no
key is on hold; a manifest between two steps holds distributors at rest.

What a round decides follows from the state before the step, the step's commands and its rows: a replay does the same
(invariant 3). Left out: where states and rows are; a `Host` per worker answers for its operators.

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
    Finished,
    Interrogate,
    Pass,
    Received,
    Rows,
    Send,
    Take,
)
from dbsp.errors import InternalError

ROUNDS_MAX = 64
"""A step of either strategy needs at most about ten rounds: more is a row that goes round for ever."""

D = TypeVar("D", bound=Distributor)


class Host(Protocol):
    """A worker's operators downstream of its distributor."""

    def ordered(self, order: Downstream) -> Sequence[Event]:
        """Do what is ordered; the answers, if it asks for any."""
        ...

    def passed(self, keys: Keys, rows: Numbers) -> None:
        """Process rows."""
        ...


def work_off(distributor: D, host: Host, events: Iterable[Event]) -> tuple[D, list[Send], list[Finished]]:
    """Handle events in order, each with all the answers of the operators; what is to be sent, and whether it is over.

    **Errors** `InternalError` for a message to oneself: there is no link for it.
    """
    sends: list[Send] = []
    over: list[Finished] = []
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
                case Finished():
                    over.append(out)
                case Interrogate() | Collect() | Take() | Drop():
                    distributor, more, ended = work_off(distributor, host, host.ordered(out))
                    sends += more
                    over += ended
    return distributor, sends, over


def in_order(received: Iterable[Received]) -> list[Received]:
    """What arrived in one round, in the order in which it is handled: states, rows, all else; by sender; as sent.

    A parcel holds its rows as one batch, apart from its messages, so this order is all there is. States go first, or a row
    would be processed without its state; words come after the rows that were sent before them (FINAL says: no more rows).
    """
    return sorted(received, key=lambda arrived: (_rank(arrived), arrived.sender))


def _rank(arrived: Received) -> int:
    match arrived.message:
        case Acquire():
            return 0
        case Rows():
            return 1
        case _:
            return 2


def run_rounds(
    distributors: Mapping[int, D], hosts: Mapping[int, Host], events: Mapping[int, Sequence[Event]]
) -> tuple[dict[int, D], int]:
    """All rounds of one step, from what every worker is told at its start; the distributors at rest, and how many rounds.

    **Errors** `InternalError` if a row goes round for ever, or something waits at the end of the step.
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
