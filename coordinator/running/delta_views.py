"""Find the views that are also Delta tables, with their columns and keys, and check them at a start."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from dbsp.algebra.key_by import refuse_shared
from dbsp.circuit.circuit import Circuit
from dbsp.circuit.names import DEAD_LETTERS
from dbsp.coordinator.serving.answers import step_schema
from dbsp.coordinator.settings.config import Config
from dbsp.errors import ConfigError
from dbsp.io.output_part import DEAD_LETTER_SCHEMA, to_table
from dbsp.zset.batch import Batch
from dbsp.zset.schema import Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaView:
    """A view that is written: with `keys` its rows, else its changes with weight and step."""

    name: str
    schema: Schema
    keys: tuple[str, ...]

    def columns(self) -> pa.Schema:
        """Return the columns of the Delta table: those of the rows if the view has a key, else those of its changes."""
        changes = to_table(Batch.empty(self.schema)).schema
        return changes.remove(len(changes) - 1) if self.keys else step_schema(changes)


def delta_views(config: Config, circuit: Circuit) -> tuple[DeltaView, ...]:
    """Return the views that the settings want as Delta tables.

    **Errors** `ConfigError` for an unknown name or column, or an output whose changes cannot be followed. It also names a
    type that Delta does not have, and the missing package. `CircuitError` for a key that two rows of a view may share.
    """
    section = config.delta
    if not section.directory:
        return ()
    if config.output.changes_elsewhere is not None:
        raise ConfigError(
            f"Delta tables are written from embedded outputs: output.kind={config.output.kind}",
            'leave `kind` in [output] at "embedded", or [delta] out',
        )
    if importlib.util.find_spec("deltalake") is None:
        raise ConfigError("Delta tables need the package deltalake", "pip install 'dbsp-engine[delta]'")
    found = tuple(_views(config, circuit))
    _refuse_no_delta(found)
    return found


def _views(config: Config, circuit: Circuit) -> Iterator[DeltaView]:
    nodes = dict(circuit.views)
    keys = config.delta.key_columns()
    for name in (*config.delta.views, *keys):
        if name not in nodes and (name != DEAD_LETTERS or name in keys):
            raise ConfigError(f"no such view: delta names {name}", f"there is {', '.join(sorted(nodes))}")
    for name in config.delta.views or nodes:
        if name in keys:
            refuse_shared(name, nodes[name], keys[name])
        schema = nodes[name].schema if name in nodes else DEAD_LETTER_SCHEMA
        yield DeltaView(name=name, schema=schema, keys=keys.get(name, ()))


def _refuse_no_delta(views: tuple[DeltaView, ...]) -> None:
    from dbsp.io.delta_table import delta_schema  # noqa: PLC0415 - its package is optional, and slow to load

    for view in views:
        types = delta_schema(view.columns(), view.name)
        for key in view.keys:
            type_ = types.field(key).type
            if pa.types.is_floating(type_) or pa.types.is_nested(type_):
                raise ConfigError(
                    f"not a key of a Delta table: view={view.name} column={key} type={type_}",
                    "keys are whole numbers, decimals, texts, times",
                )
