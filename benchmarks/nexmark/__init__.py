"""Nexmark: an auction site's events, and the queries that the field compares itself by."""
