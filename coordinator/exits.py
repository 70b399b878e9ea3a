"""End `dbsp-coordinator` and `coordinator`: print an error as a line for people, and return an exit code for scripts.

The codes:

    0   done
    1   an error of no other kind
    2   the program, the settings or the command line are wrong: fix them
    3   stored or received bytes are wrong
    4   the service, Spark or Kafka does not answer: try again
    5   a named limit was reached: raise it
    6   fenced: another coordinator owns the pipeline
    7   another version of dbsp: start the one that logged the steps, or accept; or an upgrade was refused
    70  a bug of this project
    130 interrupted twice
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

import click

from dbsp.disk import NO_ROOM
from dbsp.errors import (
    KINDS,
    DbspError,
    InternalError,
    UnavailableError,
)

OK = 0
INTERRUPTED = 130


def error_of(code: str, message: str, hint: str | None = None) -> DbspError:
    """Return the error of the kind with this code."""
    return KINDS.get(code, DbspError)(message, hint)


def exit_code(code: str | None) -> int:
    """Return the exit code for an error's kind; None is success."""
    return OK if code is None else KINDS.get(code, DbspError).exit_code


def guarded(action: Callable[[], Any]) -> int:
    """Run an action and return its exit code; print an error as one line for people.

    An unknown exception is a bug: its traceback is printed first.
    """
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
    """Return the error for an operation that the system refused, with a hint for people."""
    hint = "fix it and give the same command again"
    if error.errno in NO_ROOM:
        hint = "free space on the disks of data_dir and of temporary files, then start again: nothing that was answered is lost"
    return UnavailableError(f"the operating system refused: {error}", hint)


def report(error: DbspError) -> None:
    """Print one error and its hint for people."""
    say(f"error: {error.message}")
    if error.hint:
        say(f"hint: {error.hint}")


def say(text: str) -> None:
    """Print a line for people on standard error; if its reader is gone, continue without."""
    try:
        click.echo(text, err=True)
    except OSError:
        lead_nowhere()


def lead_nowhere() -> None:
    """Redirect standard error to the null device: its reader is gone, and later writes would fail, also those at the exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stderr.fileno())
    os.close(nowhere)
