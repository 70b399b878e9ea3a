"""How `dbsp-coordinator` and `coordinator` end: a line for people, and a code for each thing that a script must tell apart.

0   done
1   an error of no other kind
2   the program, the settings or the command line are wrong: mend them
3   stored or received bytes are wrong
4   something is away (the service, Spark, Kafka): try again
5   a named limit was reached: raise it
6   fenced: another coordinator owns the pipeline
7   another version of dbsp: start the one that logged the steps, or accept; or an upgrade was refused
70  a bug of this project
130 interrupted twice
"""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

import click

from dbsp.errors import (
    KINDS,
    DbspError,
    InternalError,
    UnavailableError,
)

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
OK = 0
INTERRUPTED = 130


def error_of(code: str, message: str, hint: str | None = None) -> DbspError:
    """The error of a kind."""
    return KINDS.get(code, DbspError)(message, hint)


def exit_code(code: str | None) -> int:
    """The exit code for an error's kind; None is success."""
    return OK if code is None else KINDS.get(code, DbspError).exit_code


def guarded(action: Callable[[], Any]) -> int:
    """The exit code of an action; an error of this project becomes one line for people and its code."""
    try:
        action()
    except DbspError as error:
        report(error)
        return exit_code(error.code)
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return exit_code("config")
    except click.Abort:
        return INTERRUPTED
    except OSError as error:
        report(refused(error))
        return exit_code(UnavailableError.code)
    except Exception as error:  # noqa: BLE001 - a bug: its story, then one line as for every error
        traceback.print_exc()
        report(InternalError(f"a bug: {type(error).__name__}: {error}", "report it with the lines above"))
        return exit_code(InternalError.code)
    return OK


def refused(error: OSError) -> UnavailableError:
    """What the system did not do, as an error for people."""
    hint = "mend it and give the same command again"
    if error.errno in NO_ROOM:
        hint = "free space on the disks of data_dir and of temporary files, then start again: nothing that was answered is lost"
    return UnavailableError(f"the system refused: {error}", hint)


def report(error: DbspError) -> None:
    """One error, for people."""
    say(f"error: {error.message}")
    if error.hint:
        say(f"hint: {error.hint}")


def say(text: str) -> None:
    """A line for people, on standard error; to nobody where who read that is gone: a service goes on all the same."""
    try:
        click.echo(text, err=True)
    except OSError:
        lead_nowhere()


def lead_nowhere() -> None:
    """Let go of standard error: nobody reads it any more, and what is written later, at the exit too, would fail."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stderr.fileno())
    os.close(nowhere)
