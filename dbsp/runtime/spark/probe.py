"""Find the version of dbsp that a Python worker imports: a task that is pickled by value, so that any version can run it.

The module must import nothing of this project: another version on a worker may lack the modules and classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator


def version_here(_index: int, nothing: Iterable[int]) -> Iterator[tuple[str, str]]:
    """Yield the host of this task with its version of dbsp, or with the import error if dbsp is absent."""
    import socket  # noqa: PLC0415 - it travels with the function
    from collections import deque  # noqa: PLC0415 - as above

    deque(nothing, maxlen=0)
    try:
        from dbsp.version import VERSION as found  # noqa: PLC0415, N811 - of the worker's host, not of the driver's
    except Exception as error:  # noqa: BLE001 - whatever a host has in the place of dbsp
        found = f"none ({error})"
    yield socket.gethostname(), found
