"""Make the parts of a statement in PostgreSQL's dialect besides its text, for every interface."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from dbsp.circuit.names import DEAD_LETTERS
from dbsp.coordinator.postgres.variables import VERSION_TEXT
from dbsp.coordinator.service import Service
from dbsp.coordinator.serving.letters import RELATION


def dialect_parts(
    database: str,
    relations: Iterable[str],
    session: Mapping[str, str],
    variables: Mapping[str, str],
    values: Sequence[tuple[str | None, str | None]],
) -> dict[str, object]:
    """Return the parts of a `dbsp.coordinator.query.dialect.Dialect` as JSON values."""
    own = {"current_database": database, "current_schema": "public", "version": VERSION_TEXT, **session}
    return {
        "parameters": [list(each) for each in values], "session": own, "variables": dict(variables),
        "relations": list(relations),
    }  # fmt: skip


def readable_relations(service: Service) -> Mapping[str, pa.Schema]:
    """Return the views whose rows can be read, and the relation of the dead letters."""
    return {**readable_views(service), DEAD_LETTERS: RELATION}


def readable_views(service: Service) -> Mapping[str, pa.Schema]:
    """Return the views whose rows can be read."""
    names = service.views()
    return {view.name: view.schema.to_arrow() for view in service.built.plan.views if view.name in names}
