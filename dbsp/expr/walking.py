"""Walks over expressions of any depth: loops instead of recursion, with one visit of each different object.

An expression is a graph. SQL's `%` names its operands five times, and a sum of 10,000 terms is 10,000 levels deep.
Python allows a thousand nested calls. A walk that follows every reference takes time exponential in the depth. So
every pass over an expression uses this module.

Invariants:
1. Arguments are visited before the call that has them.
2. An object is visited once, however often the expression refers to it.
"""

from __future__ import annotations

import gc
import string
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, TypeVar

Made = TypeVar("Made")


def arguments_of(node: Any) -> tuple[Any, ...]:
    """Return the arguments of a call; a column and a constant have none."""
    args: tuple[Any, ...] = getattr(node, "args", ())
    return args


def in_order(root: Any) -> Iterator[Any]:
    """Yield every different object of an expression, arguments first."""
    done: set[int] = set()
    waiting = [root]
    while waiting:
        node = waiting[-1]
        missing = () if id(node) in done else [arg for arg in arguments_of(node) if id(arg) not in done]
        if missing:
            waiting.extend(reversed(missing))
            continue
        waiting.pop()
        if id(node) not in done:
            done.add(id(node))
            yield node


def fold(root: Any, made: Callable[[Any, list[Made]], Made], known: Callable[[Any], Made | None] | None = None) -> Made:
    """Return `made` of the root, computed from its arguments' results; `known` returns results found before."""
    found = known(root) if known is not None else None
    if found is not None:
        return found
    done: dict[int, Made] = {}
    waiting = [root]
    while waiting:
        node = waiting[-1]
        if id(node) in done:
            waiting.pop()
            continue
        missing = []
        for arg in arguments_of(node):
            if id(arg) not in done:
                found = known(arg) if known is not None else None
                if found is None:
                    missing.append(arg)
                else:
                    done[id(arg)] = found
        if missing:
            waiting.extend(reversed(missing))
            continue
        done[id(node)] = made(node, [done[id(arg)] for arg in arguments_of(node)])
        waiting.pop()
    return done[id(root)]


def written(root: Any, parts: Callable[[Any], Sequence[Any]], length_max: int | None = None) -> str:
    """Return the text of an expression; `parts` returns the texts and arguments that make up a node's text.

    A text is cut if it is longer than `length_max`.
    """
    found: list[str] = []
    length = 0
    waiting: list[Any] = [root]
    while waiting:
        part = waiting.pop()
        if not isinstance(part, str):
            waiting.extend(reversed(parts(part)))
            continue
        found.append(part)
        length += len(part)
        if length_max is not None and length > length_max:
            return "".join(found)[: length_max - 1] + "…"
    return "".join(found)


@lru_cache(maxsize=512)
def template(text: str) -> tuple[str | int, ...]:
    """Split a template such as `({0} + {1})` into its texts and numbers."""
    found: list[str | int] = []
    for before, field, _, _ in string.Formatter().parse(text):
        found += [before] if before else []
        found += [int(field)] if field is not None else []
    return tuple(found)


CALLS_MAX = 60_000
"""Nested calls of Python that a query of 200 levels may take; they are on Python's heap, not on the processor's stack."""
_LOCK = threading.Lock()
_DEEP = {"users": 0, "before": 0, "collects": 0}


@contextmanager
def deep() -> Iterator[None]:
    """Let Python nest as many calls as a deep query needs, in this process, while the block runs.

    Nor does Python collect cycles meanwhile. A query's trees are all in use. Scanning them again and again as they
    grow took a quarter of the time of a query of 10,000 terms.
    """
    with _LOCK:
        if not _DEEP["users"]:
            _DEEP["before"], _DEEP["collects"] = sys.getrecursionlimit(), gc.isenabled()
            sys.setrecursionlimit(max(CALLS_MAX, _DEEP["before"]))
            gc.disable()
        _DEEP["users"] += 1
    try:
        yield
    finally:
        with _LOCK:
            _DEEP["users"] -= 1
            if not _DEEP["users"]:
                sys.setrecursionlimit(_DEEP["before"])
                if _DEEP["collects"]:
                    gc.enable()
