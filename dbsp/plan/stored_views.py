"""Store the reading of views from their traces as text, for a process that has another circuit.

While the backfill of a changed circuit runs, an edited view is read from its old trace. The process has no code of the old
circuit, so the operators that read views from traces are stored. Stored are frozen values of the engine's own classes: a text
with any other class or function is refused. Views whose rows a user's function makes when they are read are left out.
"""

from __future__ import annotations

import base64
import importlib
import io
import pickle
import zlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from dbsp.errors import DataError
from dbsp.plan.plan import Plan, ViewSpec
from dbsp.plan.user_code import functions_inside
from dbsp.store import RETAINED_TRACES

_CLASSES = frozenset({("builtins", "frozenset"), ("builtins", "set"), ("decimal", "Decimal"), ("datetime", "date"),
                      ("datetime", "datetime"), ("datetime", "time"), ("datetime", "timedelta")})  # fmt: skip
_TYPES = frozenset(
    {"type_for_alias", "decimal128", "timestamp", "time64", "duration", "list_", "large_list", "struct", "field"}
)
"""Functions of pyarrow that make types."""


def stored_views(views: Iterable[ViewSpec]) -> str:
    """Return the text of the views that can be stored.

    >>> stored_views([]) == stored_views([])
    True
    """
    found = {view.name: view for view in views if view.trace is not None and not functions_inside(view.shows)}
    parts = {name: pickle.dumps(view) for name, view in sorted(found.items()) if _is_stored(view)}
    return base64.b64encode(zlib.compress(pickle.dumps(parts), 9)).decode()


def views_of(text: str) -> Mapping[str, ViewSpec]:
    """Return the views of a text that `stored_views` of this version made.

    **Errors** `DataError` for a text with anything but the engine's own values.
    """
    return _read(text)


@lru_cache(maxsize=4)
def _read(text: str) -> Mapping[str, ViewSpec]:
    if not text:
        return {}
    try:
        parts = _Reader(io.BytesIO(zlib.decompress(base64.b64decode(text)))).load()
        return {name: _Reader(io.BytesIO(part)).load() for name, part in parts.items()}
    except (pickle.UnpicklingError, zlib.error, ValueError, AttributeError, ImportError, EOFError, TypeError) as error:
        raise DataError(f"stored views cannot be read: {error}", "restore the ledger from a backup") from error


def _is_stored(view: ViewSpec) -> bool:
    """Return whether the view can be read from its text again."""
    try:
        return bool(_Reader(io.BytesIO(pickle.dumps(view))).load() == view)
    except (pickle.PicklingError, pickle.UnpicklingError, AttributeError, TypeError):
        return False


class _Reader(pickle.Unpickler):
    """Makes values of the engine's own classes alone."""

    def find_class(self, module: str, name: str) -> Any:
        """Return a class of the engine, or a constructor of values."""
        if (module, name) in _CLASSES or (module == "pyarrow.lib" and name in _TYPES):
            return super().find_class(module, name)
        if module.partition(".")[0] == "dbsp":
            found = getattr(importlib.import_module(module), name)
            if isinstance(found, type):
                return found
        raise pickle.UnpicklingError(f"not a value of a view: class={module}.{name}")


def retained(before: Mapping[str, ViewSpec], names: Collection[str]) -> dict[str, ViewSpec]:
    """Return how those of the old views that have a trace are read where their old traces are retained."""
    return {
        name: replace(spec, trace=replace(spec.trace, id=RETAINED_TRACES + spec.trace.id))
        for name, spec in before.items()
        if name in names and spec.trace is not None
    }


def retained_traces(views: Iterable[ViewSpec]) -> dict[int, int]:
    """Return the number before the change of each retained trace."""
    return {view.trace.id: view.trace.id - RETAINED_TRACES for view in views if view.trace is not None}


def unfilled_views(plan: Plan, kept: frozenset[int], made: frozenset[str]) -> frozenset[str]:
    """Return the views that a backfill has yet to fill: those that it makes, and those whose trace was not kept."""
    return frozenset(
        view.name for view in plan.views if view.trace is not None and (view.name in made or view.trace.id not in kept)
    )
