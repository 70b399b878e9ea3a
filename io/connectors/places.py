"""The topics and folders that a pipeline reads or writes; if one use writes a place, no other use may share it.

A view is named by the user, and so is its topic. A view `steps` would be written into the pipeline's own step log, and its rows
would be taken for damaged records.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dbsp.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A topic or folder, and its use: what is there, how the user can name another, and whether the pipeline writes it."""

    where: str
    use: str
    remedy: str
    is_written: bool


def refuse_shared(places: Iterable[Place]) -> None:
    """Refuse a place with two uses, one of which writes there.

    >>> steps = Place(where="topic=shop.steps", use="the step log", remedy="name the pipeline otherwise", is_written=True)
    >>> view = Place(where="topic=shop.steps", use="the view steps", remedy="rename the view", is_written=True)
    >>> try:
    ...     refuse_shared([steps, view])
    ... except ConfigError as error:
    ...     print(error.message)
    topic=shop.steps is the place of both the step log and the view steps
    """
    found: dict[str, Place] = {}
    for place in places:
        other = found.setdefault(place.where, place)
        if other is not place and (other.is_written or place.is_written):
            raise ConfigError(f"{place.where} is the place of both {other.use} and {place.use}", place.remedy)
