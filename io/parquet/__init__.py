"""Reading parts of Parquet files: a reader that begins in the middle of a row group, which pyarrow lacks.

- `thrift` reads and writes the structures of footers and page headers.
- `pages` finds the pages of a column.
- `cut` makes files of some pages, which pyarrow reads.
- `row_group` decides which rows are read so.
- `few_texts` finds columns to read as dictionary codes.
- `int96` keeps timestamps of 96 bits exact.
"""
