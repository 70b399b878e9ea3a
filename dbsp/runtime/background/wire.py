"""Messages between a task and its background worker: pickles on a Unix socket, with large arrays in shared memory.

    magic | bytes of the pickle | bytes of the shared memory, and its descriptor if there are any | pickle

The shared memory is a file without a name whose descriptor is sent with the message. It is freed with the last
process that has it mapped, so nothing is left behind, whichever process is killed. Only processes of one user on one
host use this, and both sides check that (`same_user`) before they unpickle anything.
"""

from __future__ import annotations

import array
import mmap
import os
import pickle
import socket
import struct
from typing import Any

from dbsp.errors import DataError

MAGIC = b"DBSPKPR1"
_FRONT = struct.Struct("<8sQQ")
_CREDENTIALS = struct.Struct("3i")
_ALIGN = 64


def same_user(connection: socket.socket) -> bool:
    """Return whether the process at the other end belongs to this user."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, user, _ = _CREDENTIALS.unpack(raw)
    return bool(user == os.getuid())


def send(connection: socket.socket, message: Any) -> None:
    """Send one message; arrays of numpy in it are copied once, into shared memory."""
    buffers: list[pickle.PickleBuffer] = []
    body = pickle.dumps(message, protocol=5, buffer_callback=buffers.append)
    views = [buffer.raw() for buffer in buffers]
    sizes = [view.nbytes for view in views]
    total = sum(map(_aligned, sizes))
    data = pickle.dumps((sizes, body))
    front = _FRONT.pack(MAGIC, len(data), total)
    if not total:
        connection.sendall(front + data)
        return
    shared = os.memfd_create("dbsp-background", os.MFD_CLOEXEC)
    try:
        _fill(shared, views, total)
        connection.sendmsg([front], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [shared]))])
    finally:
        os.close(shared)
    connection.sendall(data)


def _fill(shared: int, views: list[memoryview], total: int) -> None:
    os.ftruncate(shared, total)
    at = 0
    for view in views:
        done = 0
        while done < view.nbytes:
            done += os.pwrite(shared, view[done:], at + done)
        at += _aligned(view.nbytes)


def receive(connection: socket.socket) -> Any:
    """Return the next message, whose arrays are read-only in the shared memory; None at the end of the connection.

    **Errors** `DataError` for bytes that are no message; `EOFError` if the message is cut short.
    """
    front, descriptors, _, _ = socket.recv_fds(connection, _FRONT.size, 1)
    try:
        if not front:
            return None
        front += _exactly(connection, _FRONT.size - len(front))
        magic, size, total = _FRONT.unpack(front)
        if magic != MAGIC or (total > 0) != (len(descriptors) == 1):
            raise DataError(f"not a message of a background worker: begins={front[:8]!r}")
        sizes, body = pickle.loads(_exactly(connection, size))  # noqa: S301  (same user, checked when connected)
        shared = memoryview(mmap.mmap(descriptors[0], total, prot=mmap.PROT_READ)) if total else memoryview(b"")
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    views, at = [], 0
    for length in sizes:
        views.append(shared[at : at + length])
        at += _aligned(length)
    return pickle.loads(body, buffers=views)  # noqa: S301  (as above)


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray(size)
    view, done = memoryview(data), 0
    while done < size:
        got = connection.recv_into(view[done:])
        if not got:
            raise EOFError("a message of a background worker ends too early")
        done += got
    return bytes(data)


def _aligned(size: int) -> int:
    return -(-size // _ALIGN) * _ALIGN
