"""Define batches, which are Z-sets stored as columns, and the operations of their group.

A batch is loose (any order, repeated rows, zero weights) or arranged. Invariants of an arranged batch:

1. Rows are sorted by (key hash, order code, row hash), as far as these words exist. Rows equal in all words are in the
   canonical order of their columns (`order.sort_columns`).
2. No row occurs twice, and no row has only zero weights. Equality is decided on the columns, never on hashes alone.
3. Columns are Arrow arrays of exactly the schema's types; floats are canonical (no -0.0, one NaN). Texts may be held as codes
   (`dbsp.zset.coded`) and weights narrow (`dbsp.zset.narrow`), but `columns` and `weights` return plain and wide ones.
4. A batch is never changed. Its arrays may be shared, and may be views of a memory map.

The row hash covers the columns outside the key: (key hash, row hash) identifies the row up to collisions.

Source: docs/concepts/data.md. Law of the group: `tests/zset/test_laws.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dbsp.errors import CapacityError, CircuitError, DataError, InternalError
from dbsp.zset import kernels
from dbsp.zset.arrays import (
    Positions,
    canonical_floats,
    gather,
    gather_all,
    is_word,
    join,
    no_rows,
    plain_bytes,
    value_view,
)
from dbsp.zset.coded import accepted, is_coded, plain
from dbsp.zset.consolidation import consolidate_sorted
from dbsp.zset.equality import equal_columns, equal_keys
from dbsp.zset.given import column_given
from dbsp.zset.hashing import hash_columns, hash_decides
from dbsp.zset.kernels import WordColumns
from dbsp.zset.narrow import NarrowWeights
from dbsp.zset.order import order_codes
from dbsp.zset.schema import Arrangement, Column, Schema, schema_of
from dbsp.zset.sorted_keys import KeyGroups, few_groups, few_rows, keys_agree, sorted_keys

__all__ = [
    "Batch", "arrange", "concat", "consolidate", "equal_keys", "keys_of", "keys_once", "rearrange",
]  # fmt: skip

Words = NDArray[np.uint64]

_WORD_COLUMNS = (1, 2)
"""Keys with this many word columns are compared together with their hash in one pass."""


class Batch:
    """Rows as columns, with one or more int64 weights each.

    **Shape** n rows; `weights` is (n, d), d = 1 for a Z-set; the three word columns are uint64 (n,) where present. The
    attribute `held` has the columns in their present form, texts perhaps coded. Callers that pass columns on, or read
    few rows, use `held`.

    **Cost** A plain column is made at its first use, and kept; wide weights are made at each use.

    **Example**

    >>> from dbsp.zset.schema import INT64, Schema
    >>> batch = Batch.from_rows(Schema.of({"a": INT64}), [((1,), 2), ((3,), 1), ((1,), -2)])
    >>> consolidate(batch).to_rows()
    [((3,), 1)]
    """

    __slots__ = ("_plain", "arrangement", "held", "held_weights", "key_hash", "order_code", "row_hash", "schema")

    def __init__(
        self,
        *,
        schema: Schema,
        columns: tuple[pa.Array, ...],
        weights: NDArray[np.int64] | NarrowWeights,
        key_hash: Words | None = None,
        order_code: Words | None = None,
        row_hash: Words | None = None,
        arrangement: Arrangement | None = None,
    ) -> None:
        """Create a batch; refuse columns and weights of different lengths, and types other than the schema's."""
        _check_weights(weights)
        self.schema = schema
        self.held = columns
        self.held_weights = weights
        self.key_hash = key_hash
        self.order_code = order_code
        self.row_hash = row_hash
        self.arrangement = arrangement
        self._plain = list(columns)
        for index in _check_columns(schema, columns, len(weights)):
            self._plain[index] = None

    @property
    def columns(self) -> tuple[pa.Array, ...]:
        """Return the columns, plain."""
        return tuple(map(self._plain_column, range(len(self.held))))

    @property
    def weights(self) -> NDArray[np.int64]:
        """Return the weights, (n, d)."""
        return self.held_weights.wide() if isinstance(self.held_weights, NarrowWeights) else self.held_weights

    def but(self, **changes: Any) -> Batch:
        """Return a copy of the batch with the named parts replaced; the parts are the arguments of `Batch`."""
        held: dict[str, Any] = {
            "schema": self.schema, "columns": self.held, "weights": self.held_weights, "key_hash": self.key_hash,
            "order_code": self.order_code, "row_hash": self.row_hash, "arrangement": self.arrangement,
        }  # fmt: skip
        return Batch(**(held | changes))

    @staticmethod
    def empty(schema: Schema, weights: int = 1) -> Batch:
        """Return a batch of no rows with `weights` weights per row."""
        columns = tuple(no_rows(column.type) for column in schema)
        return Batch(schema=schema, columns=columns, weights=np.empty((0, weights), np.int64))

    @staticmethod
    def of(schema: Schema, columns: Iterable[Any], weights: NDArray[np.int64] | None = None) -> Batch:
        """Return a loose batch of columns in any form: Arrow arrays, plain, chunked or dictionary-encoded, or numpy arrays.

        Floats become canonical. Without weights every row weighs 1; weights may be (n,) or (n, d).

        **Errors** `DataError` where a column does not fit its type or holds a null that the schema rules out.
        """
        arrays = tuple(_column(column, value) for column, value in zip(schema, columns, strict=True))
        if weights is None:
            weights = np.ones(len(arrays[0]) if arrays else 0, np.int64)
        shaped = np.ascontiguousarray(weights, np.int64).reshape(len(weights), -1 if len(weights) else _width(weights))
        return Batch(schema=schema, columns=arrays, weights=shaped)

    @staticmethod
    def from_arrow(
        data: pa.Table | pa.RecordBatch, schema: Schema | None = None, weights: NDArray[np.int64] | None = None
    ) -> Batch:
        """Return a loose batch of a table; columns are found by name, and the schema is the table's own unless given."""
        schema = schema_of(data.schema) if schema is None else schema
        missing = [name for name in schema.names if name not in data.schema.names]
        if missing:
            raise DataError(f"missing columns: columns={missing} found={data.schema.names}")
        if not len(schema) and weights is None:
            weights = np.ones(data.num_rows, np.int64)
        return Batch.of(schema, [data.column(name) for name in schema.names], weights)

    @staticmethod
    def from_rows(schema: Schema, rows: Iterable[tuple[Any, ...]]) -> Batch:
        """Return a loose batch of Python rows, `(value, ...)` or `((value, ...), weight)`; for tests and small inputs."""
        pairs = [row if row and isinstance(row[0], tuple) else (row, 1) for row in rows]
        values = list(zip(*(row for row, _ in pairs), strict=True)) if pairs else list(repeat((), len(schema)))
        columns = [pa.array(column, c.type) for column, c in zip(values, schema, strict=True)]
        return Batch.of(schema, columns, np.array([weight for _, weight in pairs], np.int64))

    def __repr__(self) -> str:
        """Return the schema, the number of rows and the arrangement."""
        return f"Batch({self.schema}, rows={len(self)}, arrangement={self.arrangement})"

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.held_weights)

    @property
    def rows(self) -> int:
        """Return the number of rows."""
        return len(self.held_weights)

    @property
    def width(self) -> int:
        """Return the number of weights per row."""
        return int(self.held_weights.shape[1])

    @property
    def weight(self) -> NDArray[np.int64]:
        """Return the weights of a Z-set, (n,)."""
        if self.width != 1:
            raise InternalError(f"a batch with several weights per row has no single one: d={self.width}")
        return self.weights.reshape(-1)

    @property
    def nbytes(self) -> int:
        """Return the bytes of all arrays, of the rows in view only, as if plain and wide.

        So equal rows have equal sizes, however they are held.
        """
        words = sum(word.nbytes for word in (self.key_hash, self.order_code, self.row_hash) if word is not None)
        return words + self.arrow_bytes

    @property
    def arrow_bytes(self) -> int:
        """Return the bytes of the columns and weights alone, of the rows in view, as if plain and wide."""
        return 8 * len(self) * self.width + sum(map(plain_bytes, self.held))

    @property
    def words(self) -> WordColumns:
        """Return the key hash, order code and row hash of an arranged batch."""
        if self.key_hash is None:
            raise InternalError("a loose batch has no key hash: arrange it first")
        return self.key_hash, self.order_code, self.row_hash

    def column(self, name: str) -> pa.Array:
        """Return the column of this name, plain."""
        return self._plain_column(self.schema.index(name))

    def _plain_column(self, index: int) -> pa.Array:
        """Return a column by its number, plain; a coded one is decoded once."""
        found = self._plain[index]
        if found is None:
            found = self._plain[index] = plain(self.held[index])
        return found

    def held_column(self, name: str) -> pa.Array:
        """Return the column of this name in its present form, texts perhaps coded."""
        return self.held[self.schema.index(name)]

    def weights_at(self, rows: Positions) -> NDArray[np.int64]:
        """Return the weights of the rows at these positions."""
        return self.held_weights.take(rows, axis=0)

    def take(self, rows: Positions, *, words: bool = False) -> Batch:
        """Return the rows at these positions, as a loose batch; `words` keeps the hashes and the order code."""
        columns = tuple(gather(column, rows) for column in self.held)
        there = self._words(lambda word: word.take(rows)) if words else {}
        return Batch(schema=self.schema, columns=columns, weights=self.weights_at(rows), **there)

    def slice(self, lo: int, hi: int) -> Batch:
        """Return the rows from `lo` up to before `hi`, without copying; the batch stays arranged."""
        if lo == 0 and hi == len(self):
            return self
        return Batch(
            schema=self.schema,
            columns=tuple(column.slice(lo, max(hi - lo, 0)) for column in self.held),
            weights=self.held_weights[lo:hi],
            arrangement=self.arrangement,
            **self._words(lambda word: word[lo:hi]),
        )

    def filter(self, mask: NDArray[np.bool_]) -> Batch:
        """Return the rows where the mask is set; the batch stays arranged."""
        rows = np.flatnonzero(mask)
        if len(rows) == len(self):
            return self
        return self.take(rows, words=True).but(arrangement=self.arrangement)

    def _words(self, some: Callable[[Words], Words]) -> dict[str, Any]:
        """Return some rows of the words that exist, by field name."""
        words = {"key_hash": self.key_hash, "order_code": self.order_code, "row_hash": self.row_hash}
        return {name: some(word) for name, word in words.items() if word is not None}

    def project(self, names: Iterable[str]) -> Batch:
        """Return a loose batch of only these columns, in this order."""
        schema = self.schema.select(names)
        columns = tuple(self.held_column(name) for name in schema.names)
        return Batch(schema=schema, columns=columns, weights=self.held_weights)

    def with_columns(self, schema: Schema, columns: Iterable[pa.Array]) -> Batch:
        """Return a loose batch with other columns and the same weights; floats are made canonical."""
        return Batch(schema=schema, columns=tuple(canonical_floats(c) for c in columns), weights=self.held_weights)

    def with_weights(self, weights: NDArray[np.int64]) -> Batch:
        """Return a loose batch with other weights, (n,) or (n, d), and the same columns."""
        shaped = np.ascontiguousarray(weights, np.int64).reshape(len(self), -1 if len(self) else _width(weights))
        return Batch(schema=self.schema, columns=self.held, weights=shaped)

    def loose(self) -> Batch:
        """Return the same rows without arrangement and hashes."""
        return Batch(schema=self.schema, columns=self.held, weights=self.held_weights)

    def negate(self) -> Batch:
        """Return the inverse in the group: every weight negated; the batch stays arranged."""
        if len(self) and self.weights.min() == np.iinfo(np.int64).min:
            raise CapacityError("weight overflow: bits=64", kernels.OVERFLOW_HINT)
        return self.but(weights=-self.weights)

    def to_arrow(self, weight_column: str | None = "weight") -> pa.Table:
        """Return an Arrow table, with a weight column unless `weight_column` is None."""
        table = pa.Table.from_arrays(list(self.columns), schema=self.schema.to_arrow())
        if weight_column is None:
            return table
        return table.append_column(pa.field(weight_column, pa.int64(), nullable=False), pa.array(self.weight))

    def to_rows(self) -> list[tuple[tuple[Any, ...], Any]]:
        """Return Python rows with their weights (a tuple if there are several), in batch order; for tests."""
        values = [column.to_pylist() for column in self.columns]
        rows = list(zip(*values, strict=True)) if values else [()] * len(self)
        if self.width == 1:
            return list(zip(rows, self.weight.tolist(), strict=True))
        return list(zip(rows, map(tuple, self.weights.tolist()), strict=True))


def _check_weights(weights: NDArray[np.int64] | NarrowWeights) -> None:
    """Refuse weights that are not int64 (n, d) and contiguous."""
    if isinstance(weights, NarrowWeights):
        return
    if weights.ndim != 2 or not weights.flags.c_contiguous or weights.dtype != np.int64:  # noqa: PLR2004  rows and weights
        raise InternalError(f"weights must be int64 (n, d), contiguous: got={weights.dtype} {weights.shape}")


def _check_columns(schema: Schema, columns: tuple[pa.Array, ...], rows: int) -> list[int]:
    """Refuse columns of other types or lengths than the schema's; return the numbers of the coded ones."""
    if len(columns) != len(schema.columns):
        raise InternalError(f"wrong number of columns: got={len(columns)} schema={schema}")
    coded = []
    for index, (column, array) in enumerate(zip(schema.columns, columns, strict=True)):
        type_ = array.type
        if type_ != column.type and is_coded(array):
            coded.append(index)
            type_ = type_.value_type
        if len(array) != rows or type_ != column.type:
            raise InternalError(
                f"wrong column: column={column.name} got={type_}[{len(array)}] want={column.type}[{rows}]"
            )
    return coded


def _width(weights: NDArray[np.int64]) -> int:
    """Return the number of weights per row of an array without rows."""
    return int(weights.shape[1]) if weights.ndim > 1 else 1


def _column(column: Column, value: Any) -> pa.Array:
    """Return a column converted to the schema's type; raise `DataError` if it does not fit."""
    array = value if isinstance(value, pa.Array | pa.ChunkedArray) else pa.array(value, column.type)
    try:
        if isinstance(array, pa.ChunkedArray):
            array = array.chunk(0) if array.num_chunks == 1 else array.combine_chunks()
        if pa.types.is_dictionary(array.type):
            array = accepted(array, column.type)
        if array.type != column.type and not is_coded(array):
            array = column_given(array, column.type)
    except pa.ArrowException as error:
        raise DataError(f"column does not fit: column={column.name} type={column.type} cause={error}") from error
    if not column.nullable and array.null_count:
        raise DataError(f"null in a column that rules it out: column={column.name} nulls={array.null_count}")
    return canonical_floats(array)


def keys_of(batch: Batch, names: Sequence[str]) -> Words:
    """Return the key hash of each row over these columns."""
    return hash_columns([batch.held_column(name) for name in names], len(batch))


def concat(batches: Sequence[Batch], schema: Schema | None = None, *, words: bool = False) -> Batch:
    """Return the sum of Z-sets as a loose batch: all rows of all batches; `words` keeps hashes and order codes.

    **Errors** `CircuitError` for batches of different schemas, and for none at all without a schema.
    """
    schema = _common_schema(batches) if schema is None else schema
    if schema is None:
        raise CircuitError("nothing to concatenate", "give the schema of the empty result")
    for batch in batches:
        if batch.schema != schema and [c.type for c in batch.schema] != [c.type for c in schema]:
            raise CircuitError(f"cannot add different schemas: left={schema} right={batch.schema}")
    filled = [batch for batch in batches if len(batch)]
    if not filled:
        return Batch.empty(schema, batches[0].width if batches else 1)
    columns = tuple(join([batch.held[i] for batch in filled]) for i in range(len(schema)))
    weights = filled[0].held_weights if len(filled) == 1 else np.concatenate([batch.weights for batch in filled])
    return Batch(schema=schema, columns=columns, weights=weights, **(_joined_words(filled) if words else {}))


def take_all(parts: Sequence[tuple[Batch, Positions]], *, words: bool = False) -> Batch:
    """Return the rows at these positions of each batch, concatenated, as a loose batch; at least one batch.

    **Law** `concat([batch.take(rows, words=words) for batch, rows in parts], words=words)`, without a batch for each
    part.
    """
    if len(parts) == 1:
        return parts[0][0].take(parts[0][1], words=words)
    batches, rows = [batch for batch, _ in parts], [at for _, at in parts]
    columns = tuple(gather_all([batch.held[i] for batch in batches], rows) for i in range(len(batches[0].schema)))
    weights = np.concatenate([batch.weights_at(at) for batch, at in parts])
    there: dict[str, Any] = {}
    for name in ("key_hash", "order_code", "row_hash") if words else ():
        held = [getattr(batch, name) for batch in batches]
        if all(word is not None for word in held):
            there[name] = np.concatenate([word.take(at) for word, at in zip(held, rows, strict=True)])
    return Batch(schema=batches[0].schema, columns=columns, weights=weights, **there)


def _common_schema(batches: Sequence[Batch]) -> Schema | None:
    """Return the first schema, with null allowed where any of the batches allows null; None without batches."""
    schemas = [batch.schema for batch in batches]
    if not schemas or all(schema == schemas[0] for schema in schemas) or len({len(schema) for schema in schemas}) > 1:
        return schemas[0] if schemas else None
    beside = zip(*schemas, strict=True)
    return Schema(tuple(Column(c[0].name, c[0].type, any(each.nullable for each in c)) for c in beside))


def _joined_words(batches: Sequence[Batch]) -> dict[str, Any]:
    """Return the words that all batches have, concatenated, by field name."""
    joined = {}
    for name in ("key_hash", "order_code", "row_hash"):
        words = [getattr(batch, name) for batch in batches]
        if all(word is not None for word in words):
            joined[name] = words[0] if len(words) == 1 else np.concatenate(words)
    return joined


def arrange(batch: Batch, arrangement: Arrangement) -> Batch:
    """Sort a batch, add up equal rows and drop zeros.

    **Law** The Z-set stays the same; arranging is idempotent.

    **Shape** The batch must have the arrangement's schema and number of weights per row.

    **Cost** Hashing, one bucket sort of the hashes, one gather of the columns.

    **Errors** `CapacityError` where the weights of a row overflow.

    **Example**

    >>> from dbsp.zset.schema import INT64, Arrangement, Schema
    >>> schema = Schema.of({"a": INT64, "b": INT64})
    >>> loose = Batch.from_rows(schema, [((1, 7), 1), ((1, 8), 1), ((1, 7), -1)])
    >>> arrange(loose, Arrangement(schema=schema, key=("a",))).to_rows()
    [((1, 8), 1)]
    """
    if batch.arrangement == arrangement:
        return batch
    _check(batch, arrangement)
    n = len(batch)
    if not n:
        return no_rows_of(arrangement)
    key, rest = _split(batch.held, arrangement)
    # If few rows are distinct, adding them up by group before the sort is cheaper than sorting all of them.
    if arrangement.hashes_rows or (arrangement.key_is_row and not arrangement.order):
        groups = few_rows(key, rest, n) if rest else few_groups(key, n)
        summed = None if groups is None else _summed(batch, groups, arrangement)
        if summed is not None:
            return summed
    code = _codes(batch.held, arrangement)
    row_hash = hash_columns(rest, n) if arrangement.hashes_rows else None
    sorted_key, sorted_code, sorted_row, order = kernels.sort_within(*sorted_keys(key, n), code, row_hash)
    decided = arrangement.key_is_row and keys_agree(key, sorted_key, order)
    return _finish(batch.held, batch.weights, order, (sorted_key, sorted_code, sorted_row), arrangement, decided)


def _summed(batch: Batch, groups: KeyGroups, arrangement: Arrangement) -> Batch | None:
    """Return the arranged batch of rows with few distinct values, or None if an intermediate sum exceeds 64 bits.

    **Cost** One pass over the weights, and a sort of the groups alone.
    """
    weights = np.zeros((len(groups), arrangement.weights), np.int64)
    try:
        kernels.scatter_add(weights, groups.of, batch.weights)
    except CapacityError:
        return None
    return of_groups(batch.held, groups, weights, arrangement)


def of_groups(
    columns: Sequence[pa.Array], groups: KeyGroups, weights: NDArray[np.int64], arrangement: Arrangement
) -> Batch:
    """Return an arranged batch of each group's first row with the group's weights, (groups, weights per row).

    All rows of a group are equal.
    """
    firsts = tuple(gather(column, groups.firsts) for column in columns)
    key, code, row, order = kernels.sort_words(groups.key_hash, _codes(firsts, arrangement), groups.row_hash)
    return _finish(firsts, weights, order, (key, code, row), arrangement, decided=groups.row_hash is None)


def _codes(columns: Sequence[pa.Array], arrangement: Arrangement) -> Words | None:
    """Return the order code of each row for the arrangement's first order column, or None without an order."""
    if not arrangement.order:
        return None
    by = arrangement.order[0]
    return order_codes(columns[arrangement.schema.index(by.column)], by)


def no_rows_of(arrangement: Arrangement) -> Batch:
    """Return an arranged batch of no rows."""
    words = np.empty(0, np.uint64)
    return Batch(
        schema=arrangement.schema,
        columns=tuple(no_rows(column.type) for column in arrangement.schema),
        weights=np.empty((0, arrangement.weights), np.int64),
        key_hash=words,
        order_code=words if arrangement.order else None,
        row_hash=words if arrangement.hashes_rows else None,
        arrangement=arrangement,
    )


def rearrange(batch: Batch, arrangement: Arrangement) -> Batch:
    """Arrange a loose batch that carries its words for this arrangement, without hashing again.

    **Cost** One bucket sort, one gather of the columns.
    """
    if not len(batch):
        return arrange(batch, arrangement)
    _check(batch, arrangement)
    key, code, row, order = kernels.sort_words(*batch.words)
    return _finish(batch.held, batch.weights, order, (key, code, row), arrangement)


def consolidate(batch: Batch) -> Batch:
    """Return the batch arranged with the whole row, in schema order, as its key."""
    width = batch.width
    return arrange(batch, Arrangement(schema=batch.schema, key=batch.schema.names, weights=width))


def keys_once(batch: Batch) -> Batch:
    """Return the distinct keys of an arranged batch, each once with weight 1, arranged.

    **Law** As many rows as `arrange` makes of the key columns alone, if no weight is zero.

    **Cost** One pass over the hashes and one gather; the keys are sorted again only if two of them share a hash.
    """
    arrangement = batch.arrangement
    if arrangement is None or batch.key_hash is None:
        raise InternalError("the keys of rows that are not arranged have no order")
    schema = batch.schema.select(arrangement.key)
    by_key = Arrangement(schema=schema, key=arrangement.key)
    columns = tuple(batch.held_column(name) for name in arrangement.key)
    fresh = kernels.run_flags(batch.key_hash)
    hashes, once = batch.key_hash, bool(fresh.all())
    if not once and not hash_decides(columns) and not _one_key_a_hash(columns, hashes, fresh):
        return arrange(Batch(schema=schema, columns=columns, weights=np.ones((len(batch), 1), np.int64)), by_key)
    if not once:
        starts = kernels.set_positions(fresh)
        columns, hashes = tuple(gather(column, starts) for column in columns), hashes.take(starts)
    weights = np.ones((len(hashes), 1), np.int64)
    return Batch(schema=schema, columns=columns, weights=weights, key_hash=hashes, arrangement=by_key)


def _one_key_a_hash(columns: Sequence[pa.Array], hashes: Words, fresh: NDArray[np.uint8]) -> bool:
    """Return whether neighbours with equal hashes have equal keys; `fresh` marks the rows where another hash begins."""
    if len(columns) in _WORD_COLUMNS and all(map(is_word, columns)):
        second, *third = (value_view(column).view(np.uint64) for column in columns)
        return bool((kernels.run_flags(hashes, second, third[0] if third else None) == fresh).all())
    repeats = kernels.set_positions(fresh == 0)
    return bool(equal_columns(columns, repeats - 1, columns, repeats).all())


def _check(batch: Batch, arrangement: Arrangement) -> None:
    """Refuse an arrangement for another schema or another number of weights."""
    if batch.schema != arrangement.schema:
        raise InternalError(f"arrangement of another schema: batch={batch.schema} arrangement={arrangement.schema}")
    if batch.width != arrangement.weights:
        raise InternalError(f"wrong weights per row: got={batch.width} want={arrangement.weights}")


def _split(columns: Sequence[pa.Array], arrangement: Arrangement) -> tuple[list[pa.Array], list[pa.Array]]:
    """Return the key columns in key order, and the others in schema order."""
    by_name = dict(zip(arrangement.schema.names, columns, strict=True))
    key = [by_name[name] for name in arrangement.key]
    return key, [array for name, array in by_name.items() if name not in arrangement.key]


def words_decide(columns: Sequence[pa.Array], arrangement: Arrangement) -> bool:
    """Return whether equal words guarantee equal rows."""
    key, rest = _split(columns, arrangement)
    return hash_decides(key) and hash_decides(rest)


def _finish(
    columns: Sequence[pa.Array],
    weights: NDArray[np.int64],
    order: Positions,
    words: WordColumns,
    arrangement: Arrangement,
    decided: bool = False,
) -> Batch:
    """Consolidate sorted rows and gather those that stay; `decided` says that equal words guarantee equal rows here."""
    kept = consolidate_sorted(columns, order, words, weights, decided=decided or words_decide(columns, arrangement))
    all_kept = len(kept.positions) == len(order)
    at = words if all_kept else [None if word is None else word.take(kept.positions) for word in words]
    return Batch(
        schema=arrangement.schema,
        columns=tuple(gather(column, kept.rows) for column in columns),
        weights=kept.weights,
        key_hash=at[0],
        order_code=at[1],
        row_hash=at[2],
        arrangement=arrangement,
    )
