"""Recursive queries: what a graph or a program says of itself, kept up to date while it changes."""
