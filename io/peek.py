"""Read the formats of the embedded logs, from the first and the last record of each kind.

Numbers of a format grow, and records are appended. So the oldest version of the engine that wrote to a file wrote its
first record, and the newest version its last. At the cost of a few pages, this shows whether this version reads a
file, before any work on it. Whether the records are whole is another question (`dbsp.io.examine`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dbsp.io import embedded_input, embedded_steps, letter_log, step_codec
from dbsp.io.chunk import check_magic
from dbsp.io.connectors import INPUT_KINDS, OUTPUT_KINDS, OutputKind, Residence
from dbsp.io.environment import is_open
from dbsp.io.examine import reading


def formats() -> dict[str, int]:
    """Return every kind of bytes that the logs on this host contain, and the number of its format."""
    kinds = (*INPUT_KINDS.values(), *OUTPUT_KINDS.values())
    return {
        **{name: number for kind in kinds for name, number in kind.stored_formats.items()},
        "log record": step_codec.FORMAT,
        "letter log": int(letter_log.FORM.rpartition(" ")[2]),
    }


def check_logs(data_dir: Path) -> None:
    """Check the formats of the letter log, the step log and the input log, as far as they exist.

    **Errors** `DataError` names the file of another format.
    """
    if _there(data_dir / "letters"):
        with reading(data_dir / "letters", letter_log.FORM, letter_log.PARTS):
            pass
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


def check_outputs(output: OutputKind, residence: Residence) -> None:
    """Refuse the file of a worker's progress that has another format."""
    folder, form = output.progress(residence), output.form
    for each in sorted(folder.iterdir()) if folder is not None and folder.is_dir() else ():
        if not each.name.startswith(".") and _there(each):
            with reading(each, form, ("data", "checksums")):
                pass


def check_ledger(folder: Path, forms: Sequence[str]) -> None:
    """Check an environment whose form alone names its format."""
    if _there(folder):
        with reading(folder, forms, ()):
            pass


def _input_kind(folder: Path) -> tuple[str, tuple[str, ...]]:
    """Return the form that the file names, and its parts; those of the default kind if no kind has this form."""
    with reading(folder, None, ()) as log:
        found = log.get("meta", b"format") or b""
    forms = [kind.log_form for kind in INPUT_KINDS.values() if kind.log_form is not None]
    named = [each for each in forms if found.startswith(each[0].rpartition(" ")[0].encode())]
    return named[0] if named else (embedded_input.FORM, ("rows", "spans", "producers"))


def _there(folder: Path) -> bool:
    """Return whether there is a log to check; a log that this process has open was checked when it was opened."""
    return folder.exists() and not is_open(folder)
