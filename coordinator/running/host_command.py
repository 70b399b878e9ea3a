"""The user's command that provides hosts before a rescale of autoscale, and takes back those that the rescale no longer uses.

`[autoscale] hosts_command` is a program with its first arguments. It is run without a shell, as one of

    PROGRAM ARGUMENTS offer WORKERS HOST...    print the hosts for so many workers, such as `a,b=2`; HOST... are on offer now
    PROGRAM ARGUMENTS release HOST...          no worker is on these hosts any more

A new machine takes minutes to start, so the command runs on a thread of its own, and steps go on.

Invariants
1. One command runs at a time.
2. An offer is used for the layout for which it was asked, or not at all.
3. A release follows the end of the rescale. If the service ends before the release, it is not repeated. The next
   `offer` names the present hosts, so the program can find the unused ones.
"""

from __future__ import annotations

import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import IO, ClassVar

from dbsp.errors import DbspError, UnavailableError
from dbsp.hosts import Offered, check_hosts, hosts_of_text

STORY_CHARACTERS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class HostOffer:
    """The hosts that the command printed for a number of workers, or the `error` why there are none.

    `layout` is the version of the layout for which it was asked.
    """

    workers: int
    layout: int
    hosts: Offered = ()
    error: str | None = None


class HostCommand:
    """Runs the command; `woken` is called on its thread when a command has ended."""

    OFFER: ClassVar[str] = "offer"
    RELEASE: ClassVar[str] = "release"

    def __init__(self, words: Sequence[str], timeout_s: float, woken: Callable[[], None]) -> None:
        """Store the command; without `words` there is none."""
        self._words, self._timeout_s, self._woken = tuple(words), timeout_s, woken
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._runs = self._is_closed = False
        self._offer: HostOffer | None = None
        self._error: str | None = None

    @property
    def exists(self) -> bool:
        """Return whether the settings name a command."""
        return bool(self._words)

    @property
    def runs(self) -> bool:
        """Return whether a command runs now, or its result was not taken yet."""
        return self._runs or self._offer is not None

    def offer(self, workers: int, layout: int, hosts: Iterable[str]) -> None:
        """Start the command `offer` for so many workers; `taken` returns its result later."""
        asked = HostOffer(workers=workers, layout=layout)
        self._begin((self.OFFER, str(workers), *hosts), lambda text: self._offered(asked, text))

    def release(self, hosts: Iterable[str]) -> None:
        """Start the command `release` for these hosts; `failed` returns its error, if there is one."""
        self._begin((self.RELEASE, *hosts), self._released)

    def taken(self) -> HostOffer | None:
        """Return the result of `offer` once; None before it is there and afterwards."""
        found, self._offer = self._offer, None
        return found

    def failed(self) -> str | None:
        """Return the error of a release, once only."""
        found, self._error = self._error, None
        return found

    def close(self) -> None:
        """Terminate the running command; further ones are not started."""
        with self._lock:
            self._is_closed = True
            if self._process is not None:
                self._process.terminate()

    def _begin(self, arguments: tuple[str, ...], ended: Callable[[str | DbspError], None]) -> None:
        self._runs = True
        threading.Thread(target=self._run, args=(arguments, ended), name="dbsp-autoscale-hosts", daemon=True).start()

    def _run(self, arguments: tuple[str, ...], ended: Callable[[str | DbspError], None]) -> None:
        try:
            ended(self._output(arguments))
        except DbspError as error:
            ended(error)
        self._runs = False
        self._woken()

    def _output(self, arguments: tuple[str, ...]) -> str:
        """Return what the command prints. **Errors** `UnavailableError` if it cannot start, fails, or takes too long."""
        with tempfile.TemporaryFile() as printed, tempfile.TemporaryFile() as said:
            self._run_to_end([*self._words, *arguments], printed, said)
            return _text(printed)

    def _run_to_end(self, command: Sequence[str], printed: IO[bytes], said: IO[bytes]) -> None:
        """Run the command, and write its output to these files.

        A program that the command starts, such as Spark's worker, may have the files open afterwards. The end of a pipe would
        come only when that program ends, too.
        """
        with self._lock:
            if self._is_closed:
                raise UnavailableError("the service ends")
            try:
                process = self._process = subprocess.Popen(  # noqa: S603 - the user's own command
                    command, stdin=subprocess.DEVNULL, stdout=printed, stderr=said
                )
            except OSError as error:
                raise UnavailableError(f"cannot run `{command[0]}`: {error.strerror}") from None
        try:
            code = process.wait(self._timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise UnavailableError(f"`{' '.join(command)}` took longer than {self._timeout_s:g} s") from None
        if code:
            story = _text(said).strip()[-STORY_CHARACTERS:]
            raise UnavailableError(f"`{' '.join(command)}` ended with code {code}: {story}")

    def _offered(self, asked: HostOffer, text: str | DbspError) -> None:
        try:
            self._offer = (
                replace(asked, hosts=hosts_printed(text))
                if isinstance(text, str)
                else replace(asked, error=text.message)
            )
        except DbspError as error:
            self._offer = replace(asked, error=error.message)

    def _released(self, text: str | DbspError) -> None:
        self._error = None if isinstance(text, str) else text.message


def _text(file: IO[bytes]) -> str:
    """Return what is in the file, where a child process has written to it."""
    file.seek(0)
    return file.read().decode(errors="replace")


def hosts_printed(text: str) -> Offered:
    """Return the hosts that a command printed, separated by commas or lines.

    **Errors** `ConfigError` if there are none, one is there twice, or a weight is not positive.

    >>> hosts_printed("a, b=2\\nc\\n")
    (('a', 1.0), ('b', 2.0), ('c', 1.0))
    """
    found = tuple(hosts_of_text(",".join(line for line in text.splitlines() if line.strip())).items())
    check_hosts(found)
    return found
