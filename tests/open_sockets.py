"""A check that a body of code leaves no socket open: one that is, is closed by the garbage collector, with a warning."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def none_left_open() -> Iterator[None]:
    """Fail if an object that the body made is collected with an open socket."""
    gc.collect()
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always", ResourceWarning)
        yield
        gc.collect()
    assert [str(each.message) for each in found] == []
