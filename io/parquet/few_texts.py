"""Text columns of Parquet that repeat few values: read as numbers, and made texts for the rows that are wanted alone.

A worker wants its share of a row group, and Parquet can only be read from its beginning. What costs there is making a text for
every row, so columns that a file holds as numbers of a dictionary are read as these. Where a column's pages gave that
up on the way, its texts would have to be looked up one by one, which takes longer: footers do not tell, but sizes do.

Leaves out: nested columns, and texts with 64-bit offsets.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

ROWS_MIN = 1 << 14
DICTIONARY_BYTES = 1 << 20
"""Writers give a dictionary up beyond this."""
NUMBER_BYTES = 2.5
"""What a number of such a dictionary takes at most, per row: a text of its own has four bytes before its first letter."""
ROW_BYTES_MAX = 16
"""With more, dictionary included, values hardly repeat."""
TEXT_BYTES_MAX = (1 << 31) - 1


def few_texts(file: pq.ParquetFile, group: int, columns: Iterable[str]) -> list[str]:
    """Those of the columns that a row group seems to hold as numbers of a short dictionary.

    Only of these columns is asked what the footer says: of one that it has damaged, pyarrow would end the process.
    """
    wanted, found = set(columns), file.metadata.row_group(group)
    if found.num_rows < ROWS_MIN:
        return []
    limit = min(DICTIONARY_BYTES + NUMBER_BYTES * found.num_rows, ROW_BYTES_MAX * found.num_rows)
    paths = [file.schema.column(number).path for number in range(file.metadata.num_columns)]
    chunks = {path: found.column(number) for number, path in enumerate(paths) if path in wanted}
    return [
        path
        for path, chunk in chunks.items()
        if file.schema_arrow.field(path).type == pa.string()
        and chunk.has_dictionary_page
        and chunk.total_uncompressed_size <= limit
    ]


def as_texts(rows: pa.Table) -> pa.Table:
    """The rows with columns of numbers made texts; rows that are not there cost nothing.

    >>> rows = pa.table({"name": pa.array(["ann", None, "ann"]).dictionary_encode()})
    >>> as_texts(rows.slice(1)).column("name").to_pylist()
    [None, 'ann']
    """
    for number, field in enumerate(rows.schema):
        if pa.types.is_dictionary(field.type) and field.type.value_type == pa.string():
            rows = rows.set_column(number, field.name, _texts(rows.column(number)))
    return rows


def _texts(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """One column; in pieces, should it have more bytes than an array of texts may."""
    pieces = []
    for chunk in column.chunks:
        longest = pc.max(pc.binary_length(chunk.dictionary)).as_py() or 1
        rows = max(1, TEXT_BYTES_MAX // longest)
        pieces += [chunk.slice(start, rows).dictionary_decode() for start in range(0, len(chunk), rows)]
    return pa.chunked_array(pieces, pa.string())
