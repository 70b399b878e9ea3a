"""Expressions on columns, and functions on rows."""
