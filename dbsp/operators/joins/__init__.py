"""Operators that join the rows of two streams."""
