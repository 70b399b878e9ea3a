"""What formats the embedded logs have: read only, the first and the last record of each kind alone.

Numbers of a format grow, and records are appended: the first was written by the oldest version of the engine that had a hand in
a file, the last by the newest. So whether this version reads a file can be told before anything is done with it, at the
cost of a few pages. Whether the records are whole is another question (`dbsp.io.examine`).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from dbsp.io import embedded_input, embedded_output, embedded_steps, file_input, file_output, step_codec
from dbsp.io.chunk import MAGIC, check_magic
from dbsp.io.environment import is_open
from dbsp.io.examine import reading

FORMS = {
    "step log": embedded_steps.FORM, "input log": embedded_input.FORM, "input of files": file_input.FORM,
    "output log": embedded_output.FORM, "progress of file outputs": file_output.FORM,
}  # fmt: skip


def formats() -> dict[str, int]:
    """Every kind of bytes that the embedded logs keep, and the number of its format."""
    named = {kind: int(form.rpartition(" ")[2]) for kind, form in FORMS.items()}
    return {**named, "log record": step_codec.FORMAT, "input record": int(MAGIC[6:])}


def check_logs(data_dir: Path) -> None:
    """The step log and the input log, as far as they are there; `DataError` names the file of another format."""
    steps = data_dir / "steps"
    if _there(steps):
        with reading(steps, embedded_steps.FORM, ("records",)) as log:
            for value in (*log.ends("records"), *filter(None, [log.get("meta", b"head")])):
                step_codec.unseal(value, f"file={steps / 'data.mdb'}")
    inputs = data_dir / "input"
    if not _there(inputs):
        return
    form, parts = _input_kind(inputs)
    with reading(inputs, form, parts) as log:
        places = [key for key, _ in log.items("spans")] if "rows" in parts else []
        for value in (value for place in places for value in log.ends("rows", place)):
            check_magic(value, f"file={inputs / 'data.mdb'}")


def check_outputs(data_dir: Path, files: Path) -> None:
    """The outputs of every worker, embedded ones and the progress of those that write files."""
    for folder, form in _outputs(data_dir, files):
        if _there(folder):
            with reading(folder, form, ("data", "checksums")):
                pass


def check_ledger(folder: Path, form: str) -> None:
    """An environment whose form alone says its format."""
    if _there(folder):
        with reading(folder, form, ()):
            pass


def _outputs(data_dir: Path, files: Path) -> Iterator[tuple[Path, str]]:
    for parent, form in ((data_dir / "outputs", embedded_output.FORM), (files / ".progress", file_output.FORM)):
        if parent.is_dir():
            yield from ((folder, form) for folder in sorted(parent.iterdir()) if not folder.name.startswith("."))


def _input_kind(folder: Path) -> tuple[str, tuple[str, ...]]:
    """Pushed rows, or files: the file says which."""
    with reading(folder, None, ()) as log:
        found = log.get("meta", b"format") or b""
    if found.startswith(file_input.FORM.rpartition(" ")[0].encode()):
        return file_input.FORM, file_input.PARTS
    return embedded_input.FORM, ("rows", "spans", "producers")


def _there(folder: Path) -> bool:
    """Whether there is a log to look at; one that this process has open was looked at when it was opened."""
    return folder.exists() and not is_open(folder)
