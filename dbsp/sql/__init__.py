"""Compile SQL: a SELECT, or a script of statements, becomes the same streams that the methods of a stream make.

Module `queries` lowers a query clause by clause over a `scope`, which maps names to columns of one stream. FROM is
lowered by `relations` and `joining`, queries inside expressions by `subqueries`, aggregates and OVER by `grouping` and
`windows`. The values of a row are lowered by `expressions` and `functions`; entry points are in `statements`. This
package computes no rows and plans no operators. The dialect has exactly the features of streams, and refuses others by name
(docs/sql.md; docs/design/0025-sql.md).
"""
