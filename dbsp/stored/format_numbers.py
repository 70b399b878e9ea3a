"""Format numbers of stored bytes: one error refuses bytes of another format, before any of them is decoded.

Every stored kind of bytes (databases, logs, records, chunks, batches) carries a number that grows when its layout
changes. A version of the engine reads exactly the numbers it knows. A newer file is never half understood, and the
layout of an older one is never guessed.
"""

from __future__ import annotations

from collections.abc import Sequence

from dbsp.errors import DataError, FormatError

NEWER = "a newer version of dbsp wrote it: run that version"
OLDER = "an older version of dbsp wrote it: run that version, or start over with an empty data_dir"


def check_format(kind: str, place: str, found: int, known: int) -> None:
    """Refuse another format than the known one; `place` names the file or topic.

    **Example**

    >>> check_format("a chunk", "file=data.mdb", 1, 1)
    >>> try:
    ...     check_format("a chunk", "file=data.mdb", 2, 1)
    ... except DataError as error:
    ...     print(error.message, error.hint, sep="\\n")
    a chunk has another format: file=data.mdb found=2 known=1
    a newer version of dbsp wrote it: run that version
    """
    if found != known:
        where = f"{place} " if place else ""
        raise FormatError(
            f"{kind} has another format: {where}found={found} known={known}", NEWER if found > known else OLDER
        )


def check_name(kind: str, place: str, found: bytes, known: bytes) -> None:
    """Refuse another format where the number ends a name (`dbsp step log 1`, `DBSPIN01`); refuse another name too.

    Another name means another kind of bytes.

    **Example**

    >>> try:
    ...     check_name("the log file", "file=data.mdb", b"dbsp step log 2", b"dbsp output log 1")
    ... except DataError as error:
    ...     print(error)
    the log file is of another kind: file=data.mdb found='dbsp step log 2' expected='dbsp output log 1'
    """
    if found == known:
        return
    (name, number), (known_name, known_number) = _parted(found), _parted(known)
    if name == known_name and number.isdigit():
        check_format(kind, place, int(number), int(known_number))
    text = found.decode("ascii", errors="replace")
    raise DataError(f"{kind} is of another kind: {place} found={text!r} expected={known.decode()!r}")


def check_names(kind: str, place: str, found: bytes, known: Sequence[str]) -> None:
    """Refuse all names but the known ones, of which the last is the newest; see `check_name`.

    >>> check_names("the log file", "file=data.mdb", b"dbsp control 2", ("dbsp control 2", "dbsp control 3"))
    """
    if found not in [name.encode() for name in known]:
        check_name(kind, place, found, known[-1].encode())


def _parted(name: bytes) -> tuple[bytes, bytes]:
    """Return a name without the digits at its end, and these digits."""
    bare = name.rstrip(b"0123456789")
    return bare, name[len(bare) :]
