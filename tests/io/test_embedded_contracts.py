"""The embedded logs pass the contracts of the logs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from dbsp.io.embedded_input import EmbeddedInputLog
from dbsp.io.embedded_output import EmbeddedOutputLog, read_outputs
from dbsp.io.embedded_steps import EmbeddedStepLog
from dbsp.io.formats import decode_json
from tests.io.log_contracts import InputLogContract, OutputLogContract, Rows, StepLogContract, by_step
from tests.io.log_samples import TABLE


class EmbeddedInputHarness:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.opened: list[EmbeddedInputLog] = []

    def open(self) -> EmbeddedInputLog:
        self.opened.append(EmbeddedInputLog(self.folder, [TABLE], create=True))
        return self.opened[-1]

    def send(self, lines: Sequence[bytes]) -> None:
        self.open().append("t", decode_json(b"\n".join(lines), TABLE))


class TestEmbeddedInputLog(InputLogContract):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> Iterator[EmbeddedInputHarness]:
        made = EmbeddedInputHarness(tmp_path)
        yield made
        for log in made.opened:
            log.close()


class TestEmbeddedStepLog(StepLogContract):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> Iterator[Callable[[], EmbeddedStepLog]]:
        opened: list[EmbeddedStepLog] = []

        def open_log() -> EmbeddedStepLog:
            opened.append(EmbeddedStepLog(tmp_path, create=True))
            return opened[-1]

        yield open_log
        for log in opened:
            log.close()


class EmbeddedOutputHarness:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.opened: list[EmbeddedOutputLog] = []

    def open(self, worker: int = 0, first_step: int = 0) -> EmbeddedOutputLog:
        self.opened.append(EmbeddedOutputLog(self.folder, worker, first_step=first_step, create=True))
        return self.opened[-1]

    def consume(self, view: str) -> Rows:
        return by_step(
            (step, (tuple(row.values())[:-1], row["weight"]))
            for step, _, table in read_outputs(self.folder, view)
            for row in table.to_pylist()
        )


class TestEmbeddedOutputLog(OutputLogContract):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> Iterator[EmbeddedOutputHarness]:
        made = EmbeddedOutputHarness(tmp_path)
        yield made
        for log in made.opened:
            log.close()
