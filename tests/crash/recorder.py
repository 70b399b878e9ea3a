"""What a process wrote to one file, as strace saw it, and the images that a power loss could leave of it.

The model of the disk: a write is certain once a later fsync or fdatasync of the file returned, or at once if its descriptor
was opened with O_DSYNC; until then any part of it may be missing, down to sectors of 512 bytes, in any order.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SECTOR = 512
TRACED = "openat,pwrite64,pwritev,writev,lseek,fdatasync,fsync,ftruncate,write,close"
STRACE = ("strace", "-f", "-qqq", "-xx", "-s", "67108864", "-e", f"trace={TRACED}")

_CALL = re.compile(r"^(?:\d+\s+)?(\w+)\((.*)\)\s+= (-?\d+)")
_BYTES = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """Bytes at an offset; `certain` if they were durable when the call returned."""

    offset: int
    data: bytes
    certain: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Synced:
    """All writes so far are durable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """The process told somebody, on its standard output."""

    text: str


Event = Write | Synced | Said


def events(log: Path, file: Path) -> list[Event]:
    """What happened to `file`, and what was said, in order."""
    found: list[Event] = []
    certain: dict[int, bool] = {}
    place: dict[int, int] = {}
    for line in log.read_text(encoding="ascii", errors="replace").splitlines():
        matched = _CALL.match(line)
        if not matched or int(matched[3]) < 0:
            continue
        call, arguments, result = matched[1], matched[2], int(matched[3])
        if call == "openat":
            names = _BYTES.findall(arguments)
            if names and plain(names[0]).decode(errors="replace") == str(file):
                certain[result] = "O_DSYNC" in arguments
            else:
                certain.pop(result, None)
            continue
        number = int(arguments.split(",")[0])
        if call == "write" and number == 1:
            found.append(Said(text=plain("".join(_BYTES.findall(arguments))).decode().strip()))
        if number not in certain:
            continue
        if call == "close":
            del certain[number]
        elif call in ("fdatasync", "fsync"):
            found.append(Synced())
        elif call == "lseek":
            place[number] = result
        elif call in ("pwrite64", "pwritev", "writev"):
            data = b"".join(plain(part) for part in _BYTES.findall(arguments))[:result]
            at = place.get(number, 0) if call == "writev" else int(arguments.rpartition(",")[2])
            found.append(Write(offset=at, data=data, certain=certain[number]))
            place[number] = at + len(data)
        elif call in ("write", "ftruncate"):
            raise AssertionError(f"a call that the model does not know: {line[:200]}")
    return found


def plain(text: str) -> bytes:
    """The bytes of strace's hexadecimal."""
    return bytes.fromhex(text.replace("\\x", ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """A file as a power loss may leave it, and what had been said by then."""

    content: bytes
    said: tuple[str, ...]
    story: str


def images(base: bytes, happened: list[Event], tries: int, rng: random.Random) -> Iterator[Image]:
    """For each moment: nothing of what is uncertain, all of it, and some random parts of it."""
    disk, uncertain, said = bytearray(base), list[Write](), list[str]()
    for moment, event in enumerate(happened):
        match event:
            case Said(text=text):
                said.append(text)
            case Synced():
                for write in uncertain:
                    put(disk, write.offset, write.data)
                uncertain = []
            case Write(certain=True):
                yield from _torn(disk, uncertain, event, said, moment, tries, rng)
                put(disk, event.offset, event.data)
            case Write():
                uncertain.append(event)
        yield from _lost(disk, uncertain, said, moment, tries, rng)


def _lost(
    disk: bytearray, uncertain: list[Write], said: list[str], moment: int, tries: int, rng: random.Random
) -> Iterator[Image]:
    yield Image(content=bytes(disk), said=tuple(said), story=f"moment {moment}: nothing uncertain")
    if not uncertain:
        return
    for share in (1.0, *(rng.random() for _ in range(tries))):
        image = bytearray(disk)
        for write in uncertain:
            if share == 1.0:
                put(image, write.offset, write.data)
                continue
            for start in range(0, len(write.data), SECTOR):
                if rng.random() < share:
                    put(image, write.offset + start, write.data[start : start + SECTOR])
        yield Image(content=bytes(image), said=tuple(said), story=f"moment {moment}: {share:.2f} of the sectors")


def _torn(
    disk: bytearray,
    uncertain: list[Write],
    event: Write,
    said: list[str],
    moment: int,
    tries: int,
    rng: random.Random,
) -> Iterator[Image]:
    """The certain write itself has arrived, or some of what was uncertain before has, when the power goes."""
    yield from _lost(disk, [*uncertain, event], said, moment, tries, rng)


def put(image: bytearray, offset: int, data: bytes) -> None:
    """Write into a file's bytes, making it longer if need be."""
    if len(image) < offset + len(data):
        image.extend(bytes(offset + len(data) - len(image)))
    image[offset : offset + len(data)] = data
