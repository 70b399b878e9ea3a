"""Define the messages of distributors: between workers, to the operators downstream, and the events that distributors get.

A distributor knows a row by its key hash, and by a number under which the host finds the row. A state is an opaque value
for distributors. In every message with keys and a state, the state counts only for these keys, even if it contains more.
So one collected state can be sent to several workers. Messages between two workers arrive in the order in which they
were sent; between different pairs any order is possible. Every message between workers carries the version of its
sender's layout.

The arrays of a message are never written to again. Messages hold arrays, so they are compared by `shown`, not by `==`.

Source: the seeds `icadd` (Interrogate, Collect, Acquire, Drop, Done) and `redistribute` (SHUTDOWN, SCALEUP, FINAL,
REDISTRIBUTE); design record 0015.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, TypeAlias

import numpy as np

from dbsp.distribute.keys import Keys, Numbers
from dbsp.layout import Layout

State: TypeAlias = Any
"""The operators' state of some keys: made and read by the host, never by a distributor."""

# Between workers.


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RowsMessage:
    """Rows that are sent to the worker that has, or will have, their state."""

    version: int
    keys: Keys
    rows: Numbers


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Acquire:
    """The state of these keys, given away by `owner`; its keys are above those of `owner`'s earlier messages."""

    version: int
    owner: int
    keys: Keys
    state: State


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Done:
    """Notice that the worker has no more state to give."""

    version: int
    worker: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ShutdownMessage:
    """Notice to an owner that leaves: the sender stores rows for the owner from now on, until it knows the owner's sets."""

    version: int
    layout: Layout


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ScaleUp:
    """Notice to an owner that stays and loses a part of its keys to `layout`; the sender acts as for `ShutdownMessage`."""

    version: int
    layout: Layout


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KeySetsMessage:
    """An owner's reply: the keys that it still serves, and the keys that are on hold."""

    version: int
    whitelist: Keys
    hold: Keys


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FinalMessage:
    """Notice that the sender has sent its last row of these keys to the old owner."""

    version: int
    keys: Keys


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RedistributeMessage:
    """The state of keys on hold, to be passed on, and the keys that are on hold from now on."""

    version: int
    keys: Keys
    state: State
    following: Keys


Message: TypeAlias = (
    RowsMessage | Acquire | Done | ShutdownMessage | ScaleUp | KeySetsMessage | FinalMessage | RedistributeMessage
)

# Events that a distributor gets.


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Local:
    """Rows from upstream on this worker."""

    keys: Keys
    rows: Numbers


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Received:
    """A message of another worker's distributor of the same region."""

    sender: int
    message: Message
    region: int = 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BeginMessage:
    """Begin a migration to `layout`. With a `pace`, keys move without further commands, `pace` at a time; 0: as commanded."""

    layout: Layout
    pace: int = 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Enter:
    """Enter the phase in which keys move, once all keys are known (only for pace 0)."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Move:
    """Move the next keys, at most `budget` of them, in hash order."""

    budget: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cancel:
    """Migrate back, as a new version; all workers get this event between two steps."""

    version: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AddKeys:
    """An operator's reply to `Interrogate`: keys with state; operators reached twice may reply twice."""

    keys: Keys
    region: int = 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Interrogated:
    """Notice that all operators have replied to `Interrogate`."""

    region: int = 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Collected:
    """Notice that all operators have replied to `Collect`, with their state of these keys."""

    keys: Keys
    state: State
    region: int = 0


# Actions of a distributor: rows passed on, messages to workers, and orders to the operators downstream.


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pass:
    """Pass these rows downstream here."""

    keys: Keys
    rows: Numbers


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Send:
    """Send a message to another worker's distributor of the same region."""

    to: int
    message: Message
    region: int = 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Interrogate:
    """Let every operator of the region report its keys with state."""

    region: int = 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Collect:
    """Let every operator of the region hand out its state of these keys; no more rows of them arrive there."""

    keys: Keys
    region: int = 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Take:
    """Let every operator of the region take over its state of these keys."""

    keys: Keys
    state: State
    region: int = 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Drop:
    """Let every operator of the region forget its state of these keys."""

    keys: Keys
    region: int = 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FinishedMessage:
    """Notice that the migration is over here: the layout of this version applies."""

    version: int


Downstream: TypeAlias = Interrogate | Collect | Take | Drop
Event: TypeAlias = (
    Local | Received | BeginMessage | Enter | Move | Cancel | AddKeys | Interrogated | Collected | Downstream
)
"""All inputs of a distributor; it ignores replies of the operators of other regions."""
Out: TypeAlias = Pass | Send | FinishedMessage | Downstream


def shown(message: object) -> Any:
    """Return a message as plain values, for tests and people.

    >>> shown(FinalMessage(version=2, keys=np.array([4], np.uint64)))
    ('FinalMessage', {'version': 2, 'keys': [4]})
    """
    if isinstance(message, np.ndarray):
        return message.tolist()
    if isinstance(message, Layout) or not hasattr(type(message), "__dataclass_fields__"):
        return message
    values = {field.name: shown(getattr(message, field.name)) for field in fields(message)}  # type: ignore[arg-type]
    return type(message).__name__, {name: value for name, value in values.items() if name != "region" or value}
