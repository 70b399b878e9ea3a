"""Timestamps of Parquet type INT96, a day and its nanoseconds: Spark's default up to version 2.

As nanoseconds of 64 bits they would range from 1677 to 2262, and pyarrow silently wraps the year 9999. So they are
read as microseconds. A second read finds the values that are no whole microseconds and keeps them as text, which
`dbsp.zset.given` refuses with their row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dbsp.zset.schema import INT64, STRING

COARSE: Mapping[str, str] = MappingProxyType({"coerce_int96_timestamp_unit": "us"})
"""The option of the usual read: INT96 timestamps become microseconds."""
FINE: Mapping[str, str] = MappingProxyType({"coerce_int96_timestamp_unit": "ns"})
"""The option of the second read: INT96 timestamps become nanoseconds."""


def int96_columns(file: pq.ParquetFile) -> frozenset[str]:
    """Return the names of the top-level INT96 columns; those within lists and structs are left out.

    Only the types of columns are read: on other damaged metadata, pyarrow may crash the process.
    """
    columns = map(file.schema.column, range(file.metadata.num_columns))
    return frozenset(each.path for each in columns if each.physical_type == "INT96" and each.path == each.name)


def with_parts(found: pa.Table, names: Sequence[str], again: Callable[[list[str]], pa.Table]) -> pa.Table:
    """Return the rows, with a text for each of these timestamps that has a fraction of a microsecond.

    `again` reads columns as nanoseconds. Nanoseconds outside 64 bits wrap, and so does the difference, which
    therefore stays exact.
    """
    names = [name for name in names if name in found.column_names]
    if not names:
        return found
    fine = again(names)
    for name in names:
        coarse = found.column(name).combine_chunks()
        nanos = _numbers(fine.column(name).combine_chunks()) - _numbers(coarse) * np.int64(1_000)
        if nanos.any():
            found = found.set_column(found.column_names.index(name), name, _texts(coarse, nanos))
    return found


def _numbers(array: Any) -> Any:
    return array.cast(INT64).fill_null(0).to_numpy(zero_copy_only=False)


def _texts(coarse: Any, nanos: Any) -> pa.Array:
    """Return the moments as texts, with nanoseconds where `nanos` is not 0."""
    texts = coarse.cast(STRING).to_pylist()
    return pa.array([text if not part else f"{text}{part:03}" for text, part in zip(texts, nanos, strict=True)], STRING)
