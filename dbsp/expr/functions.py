"""User functions: Python code from a row (a dict) to a row or to any number of rows, or from whole batches to batches.

A user function must be pure: the same row gives the same rows. The engine calls the function again for a retraction
and at every replay. With `check`, the engine calls it twice and compares. The identity of a function is a hash of its
source as a syntax tree, without positions, comments and docstrings. The hash includes the plain constants and
functions that the source refers to. It never covers bytecode, which changes with Python.
"""

from __future__ import annotations

import hashlib
import importlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dbsp.errors import CircuitError, ConfigError, DataError
from dbsp.expr.bisection import computed
from dbsp.expr.sources import source_text
from dbsp.expr.type_names import schema_name
from dbsp.zset.fitting import array_of, cast_to
from dbsp.zset.schema import Schema

if TYPE_CHECKING:
    from dbsp.zset.batch import Batch

Row = Mapping[str, Any]
CALLED = {"row": "map", "flat": "flat_map", "batch": "map_batches"}
"""By kind, the method of a stream that takes such a function."""
Failure = tuple[int, str]
Made = tuple[NDArray[np.int64], Sequence[pa.Array], list[Failure]]


@dataclass(frozen=True, slots=True, eq=False)
class UserFunction:
    """A Python function with the schema of its results.

    **Shape** by `kind`:
    - "row": a dict to a dict with exactly the columns of `schema`.
    - "flat": a dict to an iterable of such dicts.
    - "batch": a `pyarrow.RecordBatch` to one of as many rows, row by row.

    **Errors** If the function raises on a row, or returns a value that does not fit the schema, that row alone fails.
    """

    name: str
    callable: Callable[[Any], Any]
    schema: Schema
    kind: str
    source_hash: str
    check: bool = False

    @staticmethod
    def of(
        function: Callable[..., Any], schema: Schema, kind: str, depends_on: Iterable[Any] = (), check: bool = False
    ) -> UserFunction:
        """Wrap a function; its source is read now."""
        if not callable(function):
            raise CircuitError(f"not a function: got={function!r}", "give a function from a row to a row")
        text = source_text(function, tuple(depends_on))
        name = getattr(function, "__name__", type(function).__name__)
        return UserFunction(name, function, schema, kind, hashlib.sha256(text.encode()).hexdigest(), check)

    def token(self) -> str:
        """Return the canonical text: name, shape, schema, hash of the source."""
        return f"(function {self.name} {self.kind} {schema_name(self.schema)} {self.source_hash})"

    def __eq__(self, other: object) -> bool:
        """Return whether source and schema are equal."""
        return isinstance(other, UserFunction) and self.token() == other.token()

    def __hash__(self) -> int:
        """Return the hash of the text."""
        return hash(self.token())

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the function with its code, because a worker may not be able to import the user's module."""
        return _rebuild, (self.name, _dumps(self.callable), self.schema, self.kind, self.source_hash, self.check)

    def apply(self, batch: Batch) -> Made:
        """Call the function for every row.

        **Shape** Returns, for every output row, the index of its input row (int64); the columns of `schema`; and the
        failed rows with their reasons. A failed row has no output, not even part of one.

        **Errors** `DataError` if `check` finds that a second call gave other rows.
        """
        call = self._by_batch if self.kind == "batch" else self._by_row
        made = call(batch)
        if self.check and len(batch):
            last_first = np.arange(len(batch))[::-1]
            _compare(self.name, made, call(batch.take(last_first)), last_first)
        return made

    def _by_batch(self, batch: Batch) -> Made:
        """Call the function for whole batches; if one fails, bisect to find the failing rows."""
        rows = pa.RecordBatch.from_arrays(list(batch.columns), names=list(batch.schema.names))
        values, reasons = computed(lambda positions: self._struct(rows.take(pa.array(positions))), len(batch))
        kept = np.setdiff1d(np.arange(len(batch)), np.fromiter(reasons, np.int64, len(reasons)))
        columns = values.take(pa.array(kept)).flatten() if len(self.schema) else []
        failures = [(row, f"{self.name} raised {reason}") for row, reason in sorted(reasons.items())]
        return kept, columns, failures

    def _struct(self, rows: pa.RecordBatch) -> pa.Array:
        """Return the function's checked output for a batch as one array; every fault of the output is an `ArrowInvalid`.

        The function is not called for an empty batch: after all rows failed, none may be left to try.
        """
        if not rows.num_rows:
            nothing = [pa.array([], column.type) for column in self.schema]
            return pa.StructArray.from_arrays(nothing, names=list(self.schema.names))
        try:
            made = self.callable(rows)
            columns = [cast_to(_plain(made.column(column.name)), column.type) for column in self.schema]
            if len(made.schema.names) != len(self.schema) or made.num_rows != rows.num_rows:
                raise ValueError(
                    "the function returned other rows or columns than declared:"
                    f" rows={made.num_rows} of {rows.num_rows}, columns={made.schema.names}"
                )
            for column, array in zip(self.schema, columns, strict=True):
                if array.null_count and not column.nullable:
                    raise ValueError(
                        f"the function returned null in a column that is not nullable: column={column.name}"
                    )
        except Exception as error:
            raise pa.ArrowInvalid(f"{type(error).__name__}: {error}") from error
        return pa.StructArray.from_arrays(columns, names=list(self.schema.names))

    def _by_row(self, batch: Batch) -> Made:
        """Call the function row by row, with dicts."""
        names = batch.schema.names
        columns = [batch.column(name).to_pylist() for name in names]
        origin: list[int] = []
        rows: list[tuple[Any, ...]] = []
        failures: list[Failure] = []
        for position, values in enumerate(zip(*columns, strict=True)):
            try:
                made = self._rows(dict(zip(names, values, strict=True)))
            except Exception as error:  # noqa: BLE001 (user code may raise anything; the row fails, not the pipeline)
                failures.append((position, f"{self.name} raised {type(error).__name__}: {error}"))
                continue
            origin.extend([position] * len(made))
            rows.extend(made)
        return self._columns(origin, rows, failures)

    def _rows(self, row: dict[str, Any]) -> list[tuple[Any, ...]]:
        """Return the output rows of one row, as tuples in schema order."""
        made = self.callable(row)
        if self.kind == "row":
            return [self._tuple(made)]
        if made is None:
            return []
        if isinstance(made, Mapping | str | bytes) or not isinstance(made, Iterable):
            raise TypeError(f"a flat_map function returns an iterable of dicts, not a {type(made).__name__}")
        return [self._tuple(item) for item in made]

    def _tuple(self, made: Any) -> tuple[Any, ...]:
        """Return one output dict as a tuple, after checking the schema's names and nulls."""
        if not isinstance(made, Mapping):
            raise TypeError(f"the function returns a dict per row, not a {type(made).__name__}")
        if made.keys() != set(self.schema.names):
            missing = [name for name in self.schema.names if name not in made]
            extra = [name for name in made if name not in self.schema.names]
            raise KeyError(f"columns do not match the schema: missing={missing} extra={extra}")
        for column in self.schema:
            if made[column.name] is None and not column.nullable:
                raise ValueError(f"the function returned null in a column that is not nullable: column={column.name}")
        return tuple(made[name] for name in self.schema.names)

    def _columns(self, origin: list[int], rows: list[tuple[Any, ...]], failures: list[Failure]) -> Made:
        """Return Arrow columns of the rows; if a value does not fit, its input row fails."""
        try:
            columns = self._arrays(rows)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            wrong = self._misfits(origin, rows)
            failures = sorted(failures + list(wrong.items()))
            kept = [index for index, position in enumerate(origin) if position not in wrong]
            origin = [origin[index] for index in kept]
            columns = self._arrays([rows[index] for index in kept])
        return np.asarray(origin, dtype=np.int64), columns, failures

    def _arrays(self, rows: list[tuple[Any, ...]]) -> list[pa.Array]:
        by_column = list(zip(*rows, strict=True)) if rows else [()] * len(self.schema)
        return [array_of(values, column.type) for column, values in zip(self.schema, by_column, strict=True)]

    def _misfits(self, origin: list[int], rows: list[tuple[Any, ...]]) -> dict[int, str]:
        """Return the input rows with output that does not fit its column type, and the reasons."""
        wrong: dict[int, str] = {}
        for position, row in zip(origin, rows, strict=True):
            for column, value in zip(self.schema, row, strict=True):
                try:
                    array_of([value], column.type)
                except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                    reason = f"{self.name} returned a value that does not fit: column={column.name} type={column.type}"
                    wrong.setdefault(position, f"{reason} reason={error}")
        return wrong


def _plain(column: Any) -> pa.Array:
    """Return a column, which may be in chunks, as one array."""
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _compare(name: str, first: Made, second: Made, order: NDArray[np.int64]) -> None:
    """Refuse different results for one row; the second call had the rows in another order."""
    answers = [_by_origin(first, np.arange(len(order))), _by_origin(second, order)]
    for row in range(len(order)):
        one, other = (answer.get(row) for answer in answers)
        if one != other:
            raise DataError(
                f"a user function gave two answers for one row: function={name} first={one} second={other}",
                "it must depend on its row alone: no clock, no random numbers, no memory of other rows",
            )


def _by_origin(made: Made, order: NDArray[np.int64]) -> dict[int, str]:
    """Return each input row's output, or its failure, as text, in which NaNs are equal."""
    origin, columns, failures = made
    found: dict[int, list[Any]] = {}
    for row, values in zip(
        order[origin].tolist(), zip(*(column.to_pylist() for column in columns), strict=True), strict=False
    ):
        found.setdefault(row, []).append(values)
    texts = {row: repr(values) for row, values in found.items()}
    return texts | {int(order[row]): reason for row, reason in failures}


def _cloudpickle() -> Any:
    """Return the pickler that includes code: PySpark's, which its workers have too, or the separate package."""
    for name in ("pyspark.cloudpickle", "cloudpickle"):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError:
            continue
    raise ConfigError("user functions need cloudpickle to travel to workers", "pip install cloudpickle")


def _dumps(function: Callable[..., Any]) -> bytes:
    """Pickle by value, with the helpers and constants of the function's own module if that is the user's."""
    pickler = _cloudpickle()
    module = sys.modules.get(getattr(function, "__module__", None) or "")
    if module is None or not _is_users(module) or module.__name__ in pickler.list_registry_pickle_by_value():
        data: bytes = pickler.dumps(function)
        return data
    pickler.register_pickle_by_value(module)
    try:
        data = pickler.dumps(function)
    finally:
        pickler.unregister_pickle_by_value(module)
    return data


def _is_users(module: ModuleType) -> bool:
    """Return whether a module is neither part of Python nor installed, so that a worker may lack it."""
    file = getattr(module, "__file__", None)
    installed = file is None or "site-packages" in file or "dist-packages" in file
    return not installed and module.__name__.partition(".")[0] not in sys.stdlib_module_names


def _rebuild(name: str, code: bytes, schema: Schema, kind: str, source_hash: str, check: bool) -> UserFunction:
    return UserFunction(name, _cloudpickle().loads(code), schema, kind, source_hash, check)
