"""Joins: rows of two streams side by side."""
