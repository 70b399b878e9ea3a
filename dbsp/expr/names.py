"""Hints for unknown names: the nearest known ones."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from dbsp.errors import CircuitError
from dbsp.zset.schema import Schema, is_struct


def nearest(name: object, known: Iterable[str]) -> str:
    """Return a hint: the nearest known names, or all of them if none is near."""
    known = list(known)
    name = str(name)
    folded = {other.casefold(): other for other in known}
    close = [folded[match] for match in difflib.get_close_matches(name.casefold(), folded, n=3, cutoff=0.6)]
    if close:
        return "did you mean " + " or ".join(f'"{match}"' for match in close) + "?"
    return "there is " + ", ".join(f'"{other}"' for other in known) if known else "there is none"


def missing_column(name: object, schema: Schema) -> CircuitError:
    """Return the error for a column that the schema does not have."""
    head, _, field = str(name).partition(".")
    if field and head in schema and is_struct(schema[head].type):
        last = field.rpartition(".")[2]
        hint = f'add the field as a column before: .with_columns({last}=dbsp.col("{name}")), then name "{last}" here'
        return CircuitError(f'no such column: column="{name}"', hint)
    return CircuitError(f'no such column: column="{name}"', nearest(name, schema.names))
