"""A rescale in whose midst the JVM is killed."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

from dbsp.coordinator.running.status import Snapshot
from dbsp.coordinator.service import Service


def rescaled_through_a_kill(service: Service, workers: int, strategy: str, at: Callable[[Snapshot], bool]) -> Any:
    """Ask for a rescale, kill the JVM once `at` holds, wait for the end; what moved."""
    answers: list[Any] = []
    asking = threading.Thread(target=lambda: answers.append(service.rescale(workers, 300, strategy=strategy)))
    asking.start()
    assert service.live_status.wait_for(at, 120)
    runtime: Any = service._loop.runner.runtime
    os.kill(runtime._spark.process.pid, signal.SIGKILL)
    asking.join()
    assert len(service.layout().workers) == workers
    assert service.snapshot.rollbacks >= 1
    return answers[0]
