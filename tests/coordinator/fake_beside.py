"""What is copied beside the steps in the simulator, whenever it lets that go on."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any


class CopyFuture(Future[Mapping[int, Any]]):
    """Whoever waits for the copy drives it."""

    def __init__(self, copy: Beside) -> None:
        super().__init__()
        self._copy = copy

    def result(self, timeout: float | None = None) -> Mapping[int, Any]:
        while not self.done():
            self._copy.advance()
        return super().result(timeout)


class Beside:
    """What is copied beside the steps, one thing after the other, whenever the simulator lets it go on."""

    def __init__(self, waiting: list[Any], reports: dict[int, Any]) -> None:
        self.waiting, self.reports = waiting, reports
        self.future = CopyFuture(self)
        self.busy = False

    def advance(self) -> None:
        """The next one; an error ends the copy."""
        if self.future.done() or self.busy:
            return
        self.busy = True
        try:
            if self.waiting:  # else its process died when the last one had landed
                self.take(self.waiting.pop(0))
        except Exception as error:  # noqa: BLE001 - as the copier's thread does
            self.future.set_exception(error)
            return
        finally:
            self.busy = False
        if not self.waiting:
            self.future.set_result(self.reports)

    def take(self, each: Any) -> None:
        """Copy one."""
        raise NotImplementedError
