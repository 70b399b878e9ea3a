"""Notices to systemd (`Type=notify`): when the service can take steps, and when it stops.

systemd names a socket in `NOTIFY_SOCKET`; without it nothing is sent. After an upgrade by a successor the unit's main process is
the launcher, so the unit needs `NotifyAccess=all`. Source: sd_notify(3).
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress

from dbsp.coordinator.running.notices import Notice, ServiceEnded, StateChanged
from dbsp.logs import StepRecord
from dbsp.runtime.runtime import StepReport

READY, STOPPING = "READY=1", "STOPPING=1"
CAN_STEP = ("Running", "Paused", "Halted")
"""States in which a start is over; one that is halted waits for a user, not for time."""


class SystemdNotices:
    """The notices of a service to systemd. An observer, called on the event loop's thread."""

    def __init__(self) -> None:
        """Send nothing yet."""
        self._is_ready = False

    def stepped(self, record: StepRecord, report: StepReport, *, replay: bool, lag_rows: int) -> None:
        """Ignore the step."""

    def noted(self, notice: Notice) -> None:
        """Send the notice of the first state in which a start is over, and that of the end."""
        if isinstance(notice, StateChanged) and notice.state in CAN_STEP and not self._is_ready:
            self._is_ready = True
            notify(READY)
        elif isinstance(notice, ServiceEnded):
            notify(STOPPING)


def notify(text: str) -> None:
    """Send a text to the socket of `NOTIFY_SOCKET`, if there is one; a supervisor that is gone ends no service."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
        out.connect("\0" + address[1:] if address.startswith("@") else address)
        out.send(text.encode())
