"""Operators on rows in an order: the first rows, and each row beside its neighbours."""
