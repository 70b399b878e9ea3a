"""A circuit tried before a start, in this process and without files: over no rows, then over one row of each table.

A plan may be made of a circuit that no step can run. `--check` must find such a fault, before a service's first step does.
"""

from __future__ import annotations

import datetime
import decimal
from dataclasses import replace
from typing import Any

import pyarrow as pa

import dbsp
from dbsp.circuit.circuit import Circuit
from dbsp.errors import CircuitError, DbspError

_MOMENT = datetime.datetime(2024, 2, 29, 12, 30)


def try_circuit(circuit: Circuit) -> None:
    """Run the circuit once over no rows and once over one row; raise a `CircuitError` if a step fails as a whole.

    The row has made-up values. So a row that fails in an expression is no fault of the circuit: it becomes a dead letter.
    """
    try:
        with dbsp.open(replace(circuit, error_policy="dead-letter")) as run:
            run.step()
            for table in circuit.tables:
                run.push(table.name, [{column.name: _sample(column.type) for column in table.schema.columns}])
            run.step()
    except DbspError as error:
        raise CircuitError(f"the circuit cannot run: {error.message}", error.hint) from error


def _sample(type_: pa.DataType) -> Any:
    """Return a made-up value of the type."""
    if pa.types.is_struct(type_):
        return {field.name: _sample(field.type) for field in type_}
    if pa.types.is_list(type_):
        return [_sample(type_.value_type)]
    if pa.types.is_timestamp(type_):
        return _MOMENT if type_.tz is None else _MOMENT.replace(tzinfo=datetime.UTC)
    if pa.types.is_decimal(type_):
        return decimal.Decimal(1).scaleb(-type_.scale)
    samples: list[tuple[Any, Any]] = [
        (pa.types.is_boolean, True), (pa.types.is_integer, 1), (pa.types.is_floating, 1.0), (pa.types.is_string, "a"),
        (pa.types.is_binary, b"a"), (pa.types.is_date, _MOMENT.date()), (pa.types.is_time, _MOMENT.time()),
        (pa.types.is_duration, datetime.timedelta(hours=1)),
    ]  # fmt: skip
    return next((value for holds, value in samples if holds(type_)), None)
