"""Which version of dbsp a Python worker imports: a task that is pickled whole, so that any version can run it.

It must import nothing of this project before it runs: modules and classes of another version may not be there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator


def version_here(_index: int, nothing: Iterable[int]) -> Iterator[tuple[str, str]]:
    """The host of this task, and the version there; of one without dbsp the error."""
    import socket  # noqa: PLC0415 - it travels with the function
    from collections import deque  # noqa: PLC0415 - as above

    deque(nothing, maxlen=0)
    try:
        from dbsp.version import VERSION as found  # noqa: PLC0415, N811 - of the worker's host, not of the driver's
    except Exception as error:  # noqa: BLE001 - whatever a host has in the place of dbsp
        found = f"none ({error})"
    yield socket.gethostname(), found
