"""The choice of text columns to read as dictionary codes, as the Parquet file stores them.

Most of the cost of reading is making a text for every row, and a pipeline that only passes texts on never needs them
(`dbsp.zset.coded`). If a writer gave up the dictionary within a column, its texts would be looked up one by one,
which is slower than reading them. The footer does not tell this, but the sizes do.

Left out: nested columns, and texts with 64-bit offsets.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.parquet as pq

ROWS_MIN = 1 << 14
DICTIONARY_BYTES = 1 << 20
"""Writers stop using a column's dictionary when it is larger than this."""
NUMBER_BYTES = 2.5
"""The most bytes of one code of such a dictionary. A text stored by itself takes at least four, for its length."""
ROW_BYTES_MAX = 16
"""If a column takes more bytes per row than this, its dictionary included, few of its values repeat."""


def few_texts(file: pq.ParquetFile, group: int, columns: Iterable[str]) -> list[str]:
    """Return the columns that a row group seems to store as codes of a short dictionary.

    Only the metadata of these columns is read: on damaged metadata of a column, pyarrow would crash the process.
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
