"""Operators inside a recursion, whose rows have a column with the iteration in which the row changes."""
