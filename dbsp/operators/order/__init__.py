"""Operators that look at rows in an order: the first ones, and each beside its neighbours."""
