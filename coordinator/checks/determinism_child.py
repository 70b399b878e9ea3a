"""A process that runs a pipeline's user functions on some rows, and prints digests of their results; see `determinism`.

The circuit runs as a whole, in memory, so that functions after joins and groups receive rows, too. In: a line, (settings,
ranges) pickled in base64. Out: a line, {function: {digest of its arguments: digest of its result}}.
"""

from __future__ import annotations

import base64
import datetime
import hashlib
import json
import pickle
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

import dbsp
import dbsp.coordinator.garbage
from dbsp.algebra.table import Table
from dbsp.circuit.circuit import Circuit
from dbsp.circuit.load import load_circuit
from dbsp.coordinator.build import load_plan, resources_of
from dbsp.coordinator.settings.config import Config
from dbsp.errors import DbspError
from dbsp.expr.functions import UserFunction
from dbsp.logs import Range
from dbsp.plan.user_code import labelled_functions
from dbsp.zset.schema import is_list, is_struct

GENERATED_ROWS = 40
_EPOCH = datetime.datetime(2024, 5, 31, 10)


def main() -> None:
    """Run the circuit over the rows, and print the digests."""
    config, ranges = pickle.loads(base64.b64decode(sys.stdin.buffer.readline()))  # noqa: S301 - our own parent's
    answers = answers_of(config, ranges)
    sys.stdout.write("\n" + json.dumps(answers) + "\n")
    sys.stdout.flush()


def answers_of(config: Config, ranges: Sequence[Range] | None) -> dict[str, dict[str, str]]:
    """Return the digests of each function's calls; a step that fails ends the rows of its table only."""
    circuit = load_circuit(config.pipeline.circuit, config.folder)
    answers: dict[str, dict[str, str]] = {}
    for label, function in labelled_functions(circuit):
        listen(function, answers.setdefault(label, {}))
    with dbsp.open(circuit) as run:
        for name, rows in _rows(config, circuit, ranges):
            with suppress(DbspError):
                run.push(name, rows)
                run.step()
    return answers


def listen(function: UserFunction, heard: dict[str, str]) -> None:
    """Record digests of the arguments and the result of each later call.

    For equal arguments the first result counts, because a later one may differ.
    """
    call = function.callable

    def listened(*asked: Any) -> Any:
        question = digest(asked)
        try:
            made = call(*asked)
            made = list(made) if isinstance(made, Iterator) else made
        except Exception as error:
            heard.setdefault(question, digest(type(error).__name__))
            raise
        heard.setdefault(question, digest(made))
        return made

    object.__setattr__(function, "callable", listened)


def digest(value: Any) -> str:
    """Return a digest that equal values share in every process."""
    return hashlib.sha256(_canonical(value).encode("utf-8", "backslashreplace")).hexdigest()[:32]


def _canonical(value: Any) -> str:
    if isinstance(value, pa.RecordBatch | pa.Table):
        return _canonical(value.to_pydict())
    if isinstance(value, pa.Array | pa.ChunkedArray):
        return _canonical(value.to_pylist())
    if isinstance(value, np.ndarray):
        return _canonical(value.tolist())
    if isinstance(value, Mapping):
        return "{" + ",".join(sorted(f"{_canonical(key)}:{_canonical(part)}" for key, part in value.items())) + "}"
    if isinstance(value, set | frozenset):
        return "{" + ",".join(sorted(map(_canonical, value))) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_canonical, value)) + "]"
    return repr(value)


def _rows(config: Config, circuit: Circuit, ranges: Sequence[Range] | None) -> Iterator[tuple[str, Any]]:
    """Yield rows of tables: the inserted rows of the ranges, or generated rows if there are no ranges."""
    if ranges is None:
        for table in circuit.tables:
            yield table.name, generated(table)
        return
    log = resources_of(config, load_plan(config)).input_log()
    for each in ranges:
        for change in log.read(each, 0):
            inserted = change.batch.filter(change.operations == 0)
            if len(inserted):
                yield each.table, pa.table(dict(zip(inserted.schema.names, inserted.columns, strict=True)))


def generated(table: Table) -> list[dict[str, Any]]:
    """Return rows of a table, the same in every process, with few different values so that joins and groups find matches."""
    chance = random.Random(table.name)  # noqa: S311 - no secret
    return [
        {column.name: _value(chance, column.type, number) for column in table.schema}
        for number in range(GENERATED_ROWS)
    ]


def _value(chance: random.Random, type_: pa.DataType, number: int) -> Any:
    if is_list(type_):
        return [_value(chance, type_.value_type, number) for _ in range(chance.randrange(4))]
    if is_struct(type_):
        return {field.name: _value(chance, field.type, number) for field in type_}
    if pa.types.is_boolean(type_):
        return chance.random() < 0.5  # noqa: PLR2004 - half of them
    if pa.types.is_integer(type_):
        return chance.choice((0, 1, 2, number, 100))
    if pa.types.is_floating(type_):
        return chance.choice((0.0, 1.5, float(number), -2.25))
    if pa.types.is_decimal(type_):
        return Decimal(chance.randrange(9)).scaleb(-min(type_.scale, 1))
    made: Callable[[], Any] = _MADE.get(
        str(type_), lambda: chance.choice(("a", "b c", "tea, milk", f"text {number}", "é"))
    )
    if pa.types.is_timestamp(type_):
        zone = None if type_.tz is None else datetime.UTC
        return (_EPOCH + datetime.timedelta(minutes=number)).replace(tzinfo=zone)
    return made()


_MADE: Mapping[str, Callable[[], Any]] = {
    "binary": lambda: b"bytes",
    "date32[day]": _EPOCH.date,
    "time64[us]": _EPOCH.time,
    "duration[us]": lambda: datetime.timedelta(minutes=5),
}


if __name__ == "__main__":
    main()
