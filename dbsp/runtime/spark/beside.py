"""Fence, pin and copy in the driver's process, where the workers' databases are on its host."""

from __future__ import annotations

import os
from dataclasses import replace

from dbsp.runtime.inprocess import InProcessRuntime
from dbsp.runtime.parts import KeepsOutput
from dbsp.runtime.work import Work


def beside_workers(work: Work) -> InProcessRuntime | None:
    """Return the runtime that fences, pins and copies in this process, since a Spark job costs more than these.

    The workers' databases must be on this host. None if a worker's output log, which a pin trims, is expensive to open and so
    stays with its background worker.
    """
    if isinstance(work.resources, KeepsOutput) and work.resources.output_is_expensive:
        return None
    cores = os.cpu_count() or 1
    return InProcessRuntime(replace(work, background=None), opens_at_once=cores, copies_at_once=cores)
