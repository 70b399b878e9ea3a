"""Circuits written in SQL: the text of a SELECT becomes the same streams that the methods of a stream make.

`queries` lowers a query clause by clause over a `scope`, whose names stand for columns of one stream; `relations` and `joining`
are FROM, `subqueries` what stands in brackets, `grouping` and `windows` what they are called, `expressions` and the `functions`
the values of a row; `statements` are scripts. Nothing is computed here and nothing is planned: what the dialect has is what
streams have, and what it has not is refused by name (docs/sql.md; docs/design/0025-sql.md).
"""
