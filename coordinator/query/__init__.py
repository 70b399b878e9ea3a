"""Queries over the views, in processes of their own.

Module `statement` checks and runs one SELECT within limits; `process` is the service's side of the process, `child` the
other.
"""
