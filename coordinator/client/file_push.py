"""Push a file of any size in parts, under a producer whose numbers make a repeat harmless.

A file that is not larger than a part is one push. Each part of a larger one is durable when the next is sent. So after
an interruption some parts are in the table. The same command with the same producer goes on after them.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from dbsp.coordinator.client.bodies import Pushed
from dbsp.coordinator.client.file_parts import MARK, PART_BYTES, FilePart, parts
from dbsp.coordinator.exits import error_of
from dbsp.coordinator.http.kinds import JSON
from dbsp.errors import DataError, DbspError, OverloadedError, UnavailableError

AGAIN_S = 1.0
"""Seconds until a part that the service did not accept is sent again."""
PATIENCE_S = 600.0
"""Seconds for which one part is sent again."""
SHOWN_BAD = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class FileOptions:
    """Options of the push of a file; `began` is called with the producer and first number of a file in several parts."""

    content_type: str | None = None
    producer: str | None = None
    sequence: int | None = None
    wait_s: float | None = None
    part_bytes: int = PART_BYTES
    strict: bool = False
    began: Callable[[str, int], object] = lambda _producer, _sequence: None
    after: Callable[[FilePart, Pushed], object] | None = None
    waiting: Callable[[FilePart, UnavailableError], object] = lambda _part, _error: None


@dataclass(slots=True)
class PushedFile:
    """The results of the parts of a pushed file, in order.

    `rows` counts the durable rows of the parts whose places are known. `bad` has the first bad rows, each with `part` and
    `begins` where there are several parts. With `strict`, `stopped` is True if a part had bad rows and the file has more parts:
    these were not pushed.
    """

    table: str
    producer: str | None = None
    sequence: int | None = None
    parts: list[Pushed] = field(default_factory=list)
    bad: list[dict[str, Any]] = field(default_factory=list)
    bad_rows: int = 0
    stopped: bool = False

    @property
    def rows(self) -> int:
        """Return the number of durable rows."""
        return sum(part.end - part.first for part in self.parts)

    @property
    def repeated(self) -> int:
        """Return how many parts had been pushed before."""
        return sum(part.repeated for part in self.parts)

    @property
    def processed(self) -> bool | None:
        """Return whether a step has taken all rows; None if nobody waited for that."""
        return self.parts[-1].processed if self.parts else None

    def add(self, part: FilePart, pushed: Pushed) -> None:
        """Note the result of a part."""
        self.parts.append(pushed)
        self.bad_rows += pushed.bad_rows
        is_alone = part.last and part.number == 0
        where = {} if is_alone else {"part": part.number + 1, "begins": part.begins}
        self.bad += [{**where, **row} for row in pushed.bad][: SHOWN_BAD - len(self.bad)]

    def so_far(self) -> str:
        """Return what is durable, for an error."""
        done = len(self.parts)
        if not done:
            return "nothing of the file was pushed"
        return f"{'part 1 is' if done == 1 else f'parts 1 to {done} are'} durable"


def push_file(push: Callable[..., Pushed], table: str, file: BinaryIO, options: FileOptions) -> PushedFile:
    """Push a file with `push`, which takes the arguments of `Client.push`.

    **Errors** those of the push that fails. Of a file in parts, they name the part, what is durable, and how to go on.
    """
    done = PushedFile(table=table, producer=options.producer, sequence=options.sequence)
    cut = parts(file, options.content_type, options.part_bytes)
    while True:
        try:
            part = next(cut)
        except DbspError as error:
            raise error if not done.parts else _in_part(error, done, None) from None
        if part.last and part.number == 0:
            try:
                pushed = push(
                    table, part.body, producer=options.producer, sequence=options.sequence, wait_s=options.wait_s,
                    content_type=part.content_type,
                )  # fmt: skip
            except DataError as error:
                raise _of_form(error, part, options) from None
            done.add(part, pushed)
            return done
        if part.number == 0:
            done.producer = options.producer or f"push-{uuid.uuid4().hex[:12]}"
            done.sequence = options.sequence or 0
            options.began(done.producer, done.sequence)
        pushed = _sent(push, part, done, options)
        done.add(part, pushed)
        if options.after is not None:
            options.after(part, pushed)
        done.stopped = options.strict and pushed.bad_rows > 0 and not part.last
        if part.last or done.stopped:
            return done


def _sent(push: Callable[..., Pushed], part: FilePart, done: PushedFile, options: FileOptions) -> Pushed:
    """Push a part; send it again while too many rows wait, or while the service is away after it took the part before."""
    until, said = time.monotonic() + PATIENCE_S, False
    while True:
        try:
            return push(
                done.table, part.body, producer=done.producer, sequence=(done.sequence or 0) + part.number,
                wait_s=options.wait_s if part.last else None, content_type=part.content_type,
            )  # fmt: skip
        except UnavailableError as error:
            is_first = part.number == 0 and not isinstance(error, OverloadedError)
            if is_first or time.monotonic() > until:
                raise _in_part(error, done, part) from None
            if not said:
                said = True
                options.waiting(part, error)
            time.sleep(AGAIN_S)  # polling a service that takes no rows now
        except DbspError as error:
            raise _in_part(_of_form(error, part, options), done, part) from None


def _of_form(error: DbspError, part: FilePart, options: FileOptions) -> DbspError:
    """Return the error of a part; if texts that nobody named were taken for JSON, the hint says how to name them."""
    begins = part.body.removeprefix(MARK).lstrip()[:1]
    if options.content_type is not None or part.content_type != JSON or begins in {b"", b"{", b"["}:
        return error
    hint = "the rows were read as JSON; CSV and TSV are known by the ending of the file's name, or by `--format csv`"
    return error_of(error.code, error.message, hint)


def _in_part(error: DbspError, done: PushedFile, part: FilePart | None) -> DbspError:
    """Return the error of a part: which one it is, what is durable, and how to go on after it."""
    where = f"part {len(done.parts) + 1}" + ("" if part is None else f", from {part.begins} of the file")
    again = f"repeat the push with producer={done.producer} sequence={done.sequence}: the parts before it are not added twice"
    hint = again if error.hint is None else f"{error.hint}; then {again}"
    return error_of(error.code, f"{error.message} ({where}; {done.so_far()})", hint)
