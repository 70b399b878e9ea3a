"""How fast Nexmark's events are made: `python -m benchmarks.generator [--events 5000000]`, events per processor second.

It must never dominate a measurement: at least 5 M events a second.
"""

from __future__ import annotations

import time

from benchmarks import report
from benchmarks.nexmark.generator import BLOCK, Generator

WANTED = 5e6


def speed(events: int) -> float:
    """Events a second, the texts that rows take theirs from included."""
    started = time.process_time()
    for _ in Generator().batches(events, BLOCK):
        pass
    return events / (time.process_time() - started)


def main() -> None:
    """Measure, print, keep."""
    parser = report.parser(__doc__)
    parser.add_argument("--events", type=int, default=5_000_000)
    arguments = parser.parse_args()
    found = report.median(lambda: speed(arguments.events))
    key = "nexmark_events_per_cpu_s"
    report.keep("generator", {"events": arguments.events, key: round(found)}, {key: report.at_least(WANTED)})


if __name__ == "__main__":
    main()
