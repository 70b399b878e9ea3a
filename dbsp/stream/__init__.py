"""Streams: the classes and functions with which users write circuits."""

from dbsp.stream.groups import Group
from dbsp.stream.joins import join_all
from dbsp.stream.recursion import recursive
from dbsp.stream.stream import Stream
from dbsp.stream.table import table

__all__ = ["Group", "Stream", "join_all", "recursive", "table"]
