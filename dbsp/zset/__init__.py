"""Z-sets: rows with integer weights, as sorted columns.

Module `schema` describes columns; `batch` is the Z-set and its group operations. Modules `hashing`, `order` and
`equality` decide a row's place and which rows are equal. Module `encoding` turns a batch into bytes; `kernels` are the
inner loops. Nothing is imported here, so that a client that needs a schema does not load the kernels.
"""
