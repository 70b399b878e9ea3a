"""The program of a coordinator's process after another version has taken over from it: it waits for that one.

A supervisor, a container or a shell knows the process that it has started, and takes its end for the end of the service. So this
process stays under its number, passes signals on, and ends as the other one does. It is run as a script, by its path and without
the packages of its environment, which may be deleted meanwhile.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)


def launch(pid: int) -> int:
    """Wait for a child and pass signals on to it; return its exit code, or 128 plus the signal that ended it."""
    of_terminal = (signal.SIGINT, signal.SIGHUP) if os.isatty(0) else ()  # a terminal signals all its processes itself

    def pass_on(number: int, _frame: FrameType | None) -> None:
        if number not in of_terminal:
            os.kill(pid, number)

    for each in PASSED_ON:
        if signal.getsignal(each) != signal.SIG_IGN:  # `nohup` has it ignored
            signal.signal(each, pass_on)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(launch(int(sys.argv[1])))
