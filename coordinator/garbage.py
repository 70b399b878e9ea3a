"""Collect garbage seldom: the commands of the service import this module first.

Python looks for cycles of garbage after every 700 new objects, and from time to time at all objects. The modules of the
service make 600,000 objects that live until its end. Examining them took a tenth of a start's processor time, which
higher thresholds avoid. A service makes little garbage in cycles: columns and rows are freed by counting.

Programs that use `dbsp` as a library keep Python's thresholds: no module that they import imports this one.
"""

from __future__ import annotations

import gc
import time

BEGUN_S = time.monotonic()
"""The time at which this process began to import the service, by the monotonic clock."""

OBJECTS, YOUNG, OLD = 50_000, 20, 50
"""The garbage collector's thresholds: new objects until a collection; every 20th includes middle-aged ones, and every 50th of
those all objects.
"""

gc.set_threshold(OBJECTS, YOUNG, OLD)
