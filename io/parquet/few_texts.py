"""Text columns of Parquet that repeat few values: read as the numbers of a dictionary that they are in the file.

Making a text for every row is most of what reading costs, and who only hands texts on never needs it (`dbsp.zset.coded`). Where a
column's pages gave the dictionary up on the way, its texts would have to be looked up one by one, which takes longer than
reading them: footers do not tell, but sizes do.

Leaves out: nested columns, and texts with 64-bit offsets.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.parquet as pq

ROWS_MIN = 1 << 14
DICTIONARY_BYTES = 1 << 20
"""Writers give a dictionary up beyond this."""
NUMBER_BYTES = 2.5
"""What a number of such a dictionary takes at most, per row: a text of its own has four bytes before its first letter."""
ROW_BYTES_MAX = 16
"""With more, dictionary included, values hardly repeat."""


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
