"""Parts of Parquet files: what pyarrow does not offer, a reader that begins in the middle of a row group.

`thrift` reads and writes the structures of a footer and of page headers; `pages` finds the pages of a column; `cut` makes
files of some pages, which pyarrow reads; `row_group` decides which rows are read so; `int96` keeps timestamps of 96 bits exact.
"""
