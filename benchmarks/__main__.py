"""All benchmarks, each in a process of its own: `python -m benchmarks [NAME ...] [--large]`."""

from __future__ import annotations

import subprocess
import sys

ALL = (
    "kernels",
    "count_per_key",
    "join_sum",
    "recursion",
    "checkpoint",
    "memory",
    "checkpoint_pause",
    "spark_step",
    "structured_streaming",
)
WITH_LARGE = ("count_per_key", "spark_step")


def main(arguments: list[str]) -> int:
    """Run them one after the other; the number of those that failed."""
    names = [name for name in arguments if not name.startswith("-")] or list(ALL)
    failed = 0
    for name in names:
        large = ["--large"] if "--large" in arguments and name in WITH_LARGE else []
        failed += subprocess.run([sys.executable, "-m", f"benchmarks.{name}", *large], check=False).returncode != 0
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
