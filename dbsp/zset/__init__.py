"""Z-sets: rows with integer weights, as sorted columns.

`schema` says what columns are; `batch` is the Z-set and its group; `hashing`, `order` and `equality` decide where a row
lies and which rows are the same; `encoding` turns a batch into bytes; `kernels` are the inner loops. Nothing is imported
here, so that a client that needs a schema does not load the kernels.
"""
