"""The Rust `dbsp` crate: a process of its own that plays all steps of a workload each time it is asked to.

Its program (`dbsp_crate/`) reads raw columns: numbers and times as 64-bit words, texts as their bytes with the end of each. Rows
are made of them before its clock runs. It stays between runs, so that both sides of a comparison are warm and take turns.
"""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa

Steps = Sequence[Mapping[str, pa.Table]]


@dataclass(frozen=True, slots=True)
class Taken:
    """What all steps of a run took."""

    seconds: float
    cpu_s: float


class CrateError(Exception):
    """The process ended before it answered."""


class Crate:
    """The process of one workload, with the columns of its tables in a folder."""

    def __init__(self, command: Sequence[str], workload: str, folder: Path) -> None:
        self.workload, self.folder = workload, folder
        self._errors = (folder / "errors").open("w+")
        self._process = subprocess.Popen(
            [*command, workload, str(folder)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True,
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._process:
            if self._process.stdin is not None:
                self._process.stdin.close()
        self._errors.close()

    def play(self) -> Taken:
        """All steps once, in a new circuit."""
        return self._asked("")

    def answer(self, names: Sequence[str]) -> pa.Table:
        """Play all steps; what came out of them, added up, with these names for its columns."""
        self._asked(str(self.folder))
        return pa.table([_read(self.folder, f"answer.{at}") for at in range(len(names))], names=list(names))

    def profile(self) -> list[str]:
        """Play all steps under the crate's own profiler; a line for each operator of its worker, the dearest first."""
        said = self._said("profile")
        (worker,) = said["profile"]["worker_profiles"]
        spent = Counter(dict(_spent(said["profile"]["graph"]["nodes"], _processor_s(worker["metadata"]))))
        rest = ("the rest: merging in threads, input, the step", said["cpu_seconds"] - spent.total())
        return [
            f"{cpu_s:>8.3f} s {cpu_s / said['cpu_seconds']:>5.0%}  {what}"
            for what, cpu_s in [*spent.most_common(), rest]
        ]

    def _asked(self, line: str) -> Taken:
        said = self._said(line)
        return Taken(said["seconds"], said["cpu_seconds"])

    def _said(self, line: str) -> dict[str, Any]:
        sent, found = self._process.stdin, self._process.stdout
        if sent is None or found is None:
            raise CrateError("its pipes are closed")
        try:
            sent.write(f"{line}\n")
            sent.flush()
            return dict(json.loads(found.readline()))
        except (OSError, ValueError) as error:
            self._errors.seek(0)
            last = " ".join(self._errors.read().strip().splitlines()[-2:])[-300:]
            raise CrateError(f"the crate failed: workload={self.workload} {last}") from error


def _processor_s(operators: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, float]:
    """Processor seconds of each operator that ran."""
    return {
        operator: reading["value"]["value"]["numerator"] / 1e6
        for operator, readings in operators.items()
        for reading in readings
        if reading["metric_id"] == "nonblocking_percent"
    }


def _spent(
    cluster: Mapping[str, Any], processor_s: Mapping[str, float], inside: str = ""
) -> Iterator[tuple[str, float]]:
    """What each call in the program spent: its name and line, and the operator that it became."""
    for node in cluster["nodes"]:
        for kind, value in node.items():
            if kind == "Cluster":
                yield from _spent(value, processor_s, inside or f"{value['label']}: ")
            elif processor_s.get(value["id"], 0.0) > 0.0:
                yield f"{inside}{value['label']} {value['id']}", processor_s[value["id"]]


def write(tables: Mapping[str, Sequence[pa.Table]], folder: Path) -> None:
    """Each table as raw columns, and how many of its rows each step has."""
    for name, parts in tables.items():
        np.array([part.num_rows for part in parts], np.int64).tofile(folder / f"{name}.rows.i64")
        whole = pa.concat_tables(parts)
        for column in whole.column_names:
            _write(pa.concat_arrays(whole[column].chunks), folder / f"{name}.{column}")


def _write(values: pa.Array, place: Path) -> None:
    if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
        values.cast(pa.int64()).to_numpy(zero_copy_only=False).tofile(f"{place}.i64")
        return
    texts = values.cast(pa.large_string())
    _, ends, data = texts.buffers()
    bounds = np.frombuffer(ends, np.int64)[texts.offset :][: len(texts) + 1]
    (bounds[1:] - bounds[0]).tofile(f"{place}.ends.i64")
    Path(f"{place}.text").write_bytes(memoryview(data)[bounds[0] : bounds[-1]])


def _read(folder: Path, name: str) -> pa.Array:
    words, texts = folder / f"{name}.i64", folder / f"{name}.text"
    if not texts.exists():
        return pa.array(np.fromfile(words, np.int64) if words.exists() else [], pa.int64())
    ends = np.fromfile(folder / f"{name}.ends.i64", np.int64)
    bounds = pa.py_buffer(np.concatenate([[0], ends]).astype(np.int64))
    made = pa.Array.from_buffers(pa.large_string(), len(ends), [None, bounds, pa.py_buffer(texts.read_bytes())])
    return made.cast(pa.string())


def comparable(answer: pa.Table) -> pa.Table:
    """An answer with times and decimals as the whole numbers that they are to the crate: microseconds, and without the point."""
    return pa.table([_whole(column) for column in answer.columns], names=answer.column_names)


def _whole(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.timestamp("us")).cast(pa.int64())
    if pa.types.is_decimal(column.type):
        scale = column.type.scale
        return pa.chunked_array([[int(value.scaleb(scale)) for value in column.to_pylist()]], pa.int64())
    return column
