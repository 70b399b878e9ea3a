"""Counts what generated circuits put operators through: changes, retractions, and answers that vanish."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import dbsp.operators
from dbsp.operators.groups.binned_part import BinnedPart
from dbsp.operators.groups.part import AggregatePart
from dbsp.operators.operator import Operator


@dataclass
class Counts:
    """How often an operator ran with changes, with rows taken back, and gave less than it took back."""

    changes: int = 0
    retractions: int = 0
    vanishing: int = 0


@dataclass
class Tally:
    """Counts by operator."""

    of: dict[str, Counts] = field(default_factory=dict)

    def note(self, name: str, inputs: tuple[Any, ...], output: Any) -> None:
        """One run of an operator."""
        counts = self.of.setdefault(name, Counts())
        counts.changes += any(len(batch) for batch in inputs)
        counts.retractions += any((batch.weights < 0).any() for batch in inputs)
        counts.vanishing += bool(len(output)) and bool((output.weights.sum(axis=0) < 0).any())

    def report(self) -> str:
        """One line per operator."""
        lines = [
            f"{name:<24} changes {c.changes:>7,}  retractions {c.retractions:>7,}  vanishing {c.vanishing:>7,}"
            for name, c in sorted(self.of.items())
        ]
        return "\n".join(lines)


def operators() -> dict[str, type[Operator]]:
    """Every kind of physical operator there is."""
    for module in pkgutil.walk_packages(dbsp.operators.__path__, "dbsp.operators."):
        importlib.import_module(module.name)
    found = {}
    waiting = [Operator]
    while waiting:
        for kind in waiting.pop().__subclasses__():
            waiting.append(kind)
            if "step" in vars(kind) and kind.__module__.startswith("dbsp."):
                found[kind.__name__] = kind
    return found


BASES = (AggregatePart, BinnedPart)


def parts() -> dict[str, Any]:
    """Every kind of part that a group-by keeps."""
    operators()
    modules = [
        importlib.import_module(m.name) for m in pkgutil.walk_packages(dbsp.operators.__path__, "dbsp.operators.")
    ]
    found = [kind for module in modules for kind in vars(module).values() if isinstance(kind, type)]
    return {
        kind.__name__: kind
        for kind in found
        if kind.__name__.endswith("Part") and hasattr(kind, "form") and hasattr(kind, "step") and kind not in BASES
    }


def vanished(old: Any, new: Any) -> bool:
    """Whether a value of some group was there and is not, or a sum of its rows."""
    if isinstance(old, np.ndarray):
        return bool(((old != 0) & (new == 0)).any())
    pairs = zip(old.columns, new.columns, strict=True)
    return any(_there(before) - _there(after) for before, after in pairs)


def _there(column: Any) -> set[int]:
    """The places with a value; a count of 0 is none."""
    return {at for at, value in enumerate(column.to_pylist()) if value is not None and value != 0}


@contextmanager
def tallied(of_parts: bool = False) -> Iterator[Tally]:
    """Every operator counts while the block runs; or, instead, every part of a group-by."""
    tally = Tally()
    kinds = {} if of_parts else operators()
    originals = {name: kind.step for name, kind in kinds.items()}

    def counting(name: str, step: Any) -> Any:
        def counted(self: Any, context: Any, state: Any, inputs: tuple[Any, ...]) -> Any:
            output = step(self, context, state, inputs)
            tally.note(name, inputs, output)
            return output

        return counted

    def counting_part(name: str, step: Any) -> Any:
        def counted(self: Any, state: Any, groups: Any, delta: Any) -> Any:
            old, new = step(self, state, groups, delta)
            tally.note(name, (delta,), ())
            tally.of[name].vanishing += vanished(old, new)
            return old, new

        return counted

    for name, kind in kinds.items():
        kind.step = counting(name, originals[name])  # type: ignore[method-assign]
        tally.of[name] = Counts()
    kept = {name: (kind, "sums" if hasattr(kind, "sums") else "step") for name, kind in parts().items() if of_parts}
    steps = {name: getattr(kind, method) for name, (kind, method) in kept.items()}
    for name, (kind, method) in kept.items():
        setattr(kind, method, counting_part(name, steps[name]))
        tally.of[name] = Counts()
    try:
        yield tally
    finally:
        for name, kind in kinds.items():
            kind.step = originals[name]  # type: ignore[method-assign]
        for name, (kind, method) in kept.items():
            setattr(kind, method, steps[name])
