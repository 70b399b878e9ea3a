"""The coordinator's process for the crash tests: the real service, with a point where it kills itself.

`python coordinator_child.py pipeline.toml [part.method:before|after:n]` kills itself with SIGKILL at the n-th call of a method of
the runtime, the logs or the ledger. The product knows nothing of this: the parts are wrapped on their way in.
"""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from dbsp.coordinator.config import load_config
from dbsp.coordinator.serve import guarded, run


class Deadly:
    """Stands before a part and dies at the named call."""

    def __init__(self, name: str, part: Any, point: str) -> None:
        self._name, self._part, self._point = name, part, point
        self._calls: Counter[str] = Counter()

    def __getattr__(self, method: str) -> Any:
        found = getattr(self._part, method)
        if not callable(found):
            return found

        def call(*args: Any, **kwargs: Any) -> Any:
            self._calls[method] += 1
            place = f"{self._name}.{method}"
            if self._point == f"{place}:before:{self._calls[method]}":
                os.kill(os.getpid(), signal.SIGKILL)
            result = found(*args, **kwargs)
            if self._point == f"{place}:after:{self._calls[method]}":
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return call


def main() -> None:
    point = sys.argv[2] if len(sys.argv) > 2 else ""

    def serve() -> None:
        config = load_config(Path(sys.argv[1]))
        sys.exit(run(config, progress=False, wrap=lambda name, part: Deadly(name, part, point)))

    sys.exit(guarded(serve))


if __name__ == "__main__":
    main()
