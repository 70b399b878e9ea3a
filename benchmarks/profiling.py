"""Where the time of a run in this process goes: per node and per phase, as a table and as a flame graph for speedscope.app.

    profile = Profile()
    with profile.recording("q9"):
        ...  # steps of a run
    print(profile.table())
    profile.write(Path("out.speedscope.json"))

The functions that do a phase's work (`PLACES`), the kernels and the nodes are wrapped while a recording is open, and put back
afterwards: without a profile nothing is paid. The time of a phase is its own: what another phase does inside it counts
there. Bytes are of what the phase's functions returned. Kernels of numba are named in the flame graph below the phase
that calls them; their phase is that of their module unless a phase is already open.

1. A wrapped function does what it did; only the thread that opened the recording is seen.
2. Every name in `PLACES` must exist: a renamed function stops the profile instead of vanishing from it.

Left out: other processes, so the tasks and background workers of Spark; the coordinator has figures per node and worker of those.
"""

from __future__ import annotations

import functools
import importlib
import json
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dbsp.steps.segment
from dbsp.zset.kernels.kernel import Kernel

PHASES = ("decode", "expressions", "hash", "sort", "exchange", "look-up", "merge", "gather", "sum", "store", "encode")
REST = "rest"
OUTSIDE = "(between nodes)"
SHOWN_SHARE = 0.002
PLACES = {
    "decode": (
        "dbsp.zset.encoding:decode",
        "dbsp.zset.batch:Batch.from_arrow",
        "dbsp.runtime.session:rows_to_batch",
        "dbsp.runtime.tasks:read_changes",
        "dbsp.runtime.table_batches:table_batches",
    ),
    "expressions": ("dbsp.operators.apply:_Flow.value",),
    "hash": ("dbsp.zset.hashing:hash_columns",),
    "sort": ("dbsp.zset.batch:arrange", "dbsp.zset.batch:consolidate", "dbsp.zset.batch_rows:sort_rows"),
    "exchange": (
        "dbsp.steps.exchange:split",
        "dbsp.steps.exchange:gather",
        "dbsp.steps.exchange:to_bytes",
        "dbsp.steps.exchange:from_bytes",
    ),
    "look-up": tuple(
        f"dbsp.trace.spine:Spine.{name}"
        for name in (
            "matches",
            "sums",
            "ranges",
            "first_code",
            "reach",
            "weight_between",
            "first_rows",
            "first_rows_twice",
        )
    ),
    "merge": ("dbsp.zset.merge:merge_all", "dbsp.trace.merging:advance"),
    "gather": ("dbsp.zset.arrays:gather", "dbsp.zset.arrays:join"),
    "store": ("dbsp.trace.spine:append", "dbsp.trace.merging:store", "dbsp.storage.transaction:Transaction.finish"),
    "encode": ("dbsp.zset.encoding:encode", "dbsp.runtime.parts:write", "dbsp.io.output_part:encode_part"),
}
KERNELS = {
    "hashes": "hash",
    "sorts": "sort",
    "merges": "merge",
    "ranges": "look-up",
    "sums": "sum",
    "floats": "sum",
    "variances": "sum",
    "bytestrings": "hash",
    "frames": "sum",
    "groups": "sort",
    "first_rows": "look-up",
    "picks": "gather",
    "texts": "expressions",
}


@dataclass(slots=True)
class Cell:
    """What one phase of one node took."""

    calls: int = 0
    seconds: float = 0.0
    bytes: int = 0


@dataclass(slots=True)
class Open:
    """A frame that is not yet closed; `inner` are the seconds of the frames that were opened and closed within it."""

    frame: int
    phase: str | None
    node: str
    at: float
    inner: float = 0.0


@dataclass(slots=True)
class Recording:
    """The frames of one recording: events for the flame graph, sums for the table."""

    title: str
    clock: Callable[[], float]
    thread: int = field(default_factory=threading.get_ident)
    frames: dict[str, int] = field(default_factory=dict)
    events: list[tuple[str, int, float]] = field(default_factory=list)
    stack: list[Open] = field(default_factory=list)
    cells: dict[tuple[str, str], Cell] = field(default_factory=lambda: defaultdict(Cell))
    node_s: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    started: float = 0.0
    ended: float = 0.0

    def open(self, name: str, phase: str | None, node: str | None = None) -> None:
        """A frame begins; a node's has a name and no phase."""
        top = self.stack[-1] if self.stack else None
        inherited = node if node is not None else (top.node if top is not None else OUTSIDE)
        frame, at = self.frames.setdefault(name, len(self.frames)), self.clock()
        self.events.append(("O", frame, at))
        self.stack.append(
            Open(frame, phase or (top.phase if top is not None and node is None else None), inherited, at)
        )

    def close(self, result: Any = None) -> None:
        """The newest frame ends."""
        at = self.clock()
        done = self.stack.pop()
        self.events.append(("C", done.frame, at))
        whole = at - done.at
        cell = self.cells[done.node, done.phase or REST]
        cell.seconds += whole - done.inner
        outer = self.stack[-1] if self.stack else None
        if outer is not None:
            outer.inner += whole
        if outer is None or (outer.phase, outer.node) != (done.phase, done.node):
            cell.calls += 1
            cell.bytes += size_of(result)

    def wrap(self, function: Callable[..., Any], name: str, phase: str) -> Callable[..., Any]:
        """The function within a frame."""

        @functools.wraps(function)
        def framed(*arguments: Any, **named: Any) -> Any:
            if threading.get_ident() != self.thread:
                return function(*arguments, **named)
            self.open(name, phase)
            result = None
            try:
                result = function(*arguments, **named)
            finally:
                self.close(result)
            return result

        return framed

    def node(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`dbsp.steps.segment._run_node` within a frame of the node."""

        @functools.wraps(function)
        def framed(node: Any, *arguments: Any) -> Any:
            if threading.get_ident() != self.thread:
                return function(node, *arguments)
            name = f"#{node.id} {type(node.operator).__name__}"
            self.open(name, None, name)
            result = None
            try:
                result = function(node, *arguments)
            finally:
                self.close(result)
            return result

        return framed

    def kernel(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """`Kernel.__call__` within a frame; an open phase stays the phase."""

        def framed(kernel: Kernel, *arguments: Any) -> Any:
            if threading.get_ident() != self.thread:
                return call(kernel, *arguments)
            module = kernel.function.__module__.rpartition(".")[2]
            within = self.stack[-1].phase if self.stack else None
            self.open(f"{module}.{kernel.function.__name__}", within or KERNELS.get(module, "sum"))
            result = None
            try:
                result = call(kernel, *arguments)
            finally:
                self.close(result)
            return result

        return framed


class Profile:
    """Recordings, one after the other."""

    def __init__(self, clock: Callable[[], float] = time.thread_time) -> None:
        """By the clock of the thread's processor time, or `time.perf_counter` to see waiting too."""
        self.clock = clock
        self.recordings: list[Recording] = []

    @contextmanager
    def recording(self, title: str) -> Iterator[Recording]:
        """What this thread does inside is recorded."""
        made = Recording(title, self.clock)
        with ExitStack() as undo:
            for phase, places in PLACES.items():
                for place in places:
                    _replace(undo, place, functools.partial(_wrapped, made, place, phase))
            _set(undo, dbsp.steps.segment, "_run_node", made.node(dbsp.steps.segment._run_node))
            _set(undo, Kernel, "__call__", made.kernel(Kernel.__call__))
            made.started = self.clock()
            try:
                yield made
            finally:
                made.ended = self.clock()
        self.recordings.append(made)

    def table(self) -> str:
        """The last recording: per node, the milliseconds and megabytes of each phase."""
        return table_of(self.recordings[-1])

    def write(self, file: Path) -> None:
        """All recordings as one file for speedscope.app."""
        names: dict[str, int] = {}
        profiles = []
        for made in self.recordings:
            number = {local: names.setdefault(name, len(names)) for name, local in made.frames.items()}
            events = [
                {"type": kind, "frame": number[frame], "at": at - made.started} for kind, frame, at in made.events
            ]
            profiles.append(
                {
                    "type": "evented", "name": made.title, "unit": "seconds", "startValue": 0.0,
                    "endValue": made.ended - made.started, "events": events,
                }
            )  # fmt: skip
        document = {
            "$schema": "https://www.speedscope.app/file-format-schema.json",
            "shared": {"frames": [{"name": name} for name in names]},
            "profiles": profiles,
            "exporter": "dbsp benchmarks.profiling",
        }
        file.write_text(json.dumps(document))


def table_of(made: Recording) -> str:
    """A row per node, most time first; columns are phases that took any; milliseconds, and MB below them."""
    phases = [phase for phase in (*PHASES, REST) if any(key[1] == phase for key in made.cells)]
    nodes: dict[str, float] = defaultdict(float)
    for (node, _), cell in made.cells.items():
        nodes[node] += cell.seconds
    whole = made.ended - made.started
    lines = [f"{made.title}: {1000 * whole:,.0f} ms; milliseconds by phase, megabytes returned below"]
    lines.append(f"{'node':<28}{'all':>9}" + "".join(f"{phase:>12}" for phase in phases))
    for node in sorted(nodes, key=lambda name: -nodes[name]):
        if nodes[node] < SHOWN_SHARE * whole:
            continue
        cells = [made.cells.get((node, phase), Cell()) for phase in phases]
        lines.append(f"{node:<28}{1000 * nodes[node]:>9,.1f}" + "".join(f"{1000 * c.seconds:>12,.1f}" for c in cells))
        lines.append(" " * 37 + "".join(f"{c.bytes / 1e6:>12,.1f}" for c in cells))
    sums = [sum(cell.seconds for key, cell in made.cells.items() if key[1] == phase) for phase in phases]
    lines.append(f"{'all nodes':<28}{1000 * sum(sums):>9,.1f}" + "".join(f"{1000 * each:>12,.1f}" for each in sums))
    lines.append(f"{'outside of all frames':<28}{1000 * (whole - sum(sums)):>9,.1f}")
    return "\n".join(lines)


def size_of(result: Any) -> int:
    """Bytes of batches, arrays and buffers, alone or in a tuple or list."""
    if isinstance(result, tuple | list):
        return sum(size_of(each) for each in result)
    if isinstance(result, bytes | bytearray | memoryview):
        return len(result)
    size = getattr(result, "nbytes", 0)
    return size if isinstance(size, int) else 0


def _wrapped(made: Recording, place: str, phase: str, function: Callable[..., Any]) -> Callable[..., Any]:
    return made.wrap(function, place.partition(":")[2], phase)


def _replace(undo: ExitStack, place: str, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Replace a function wherever a module of ours has imported it, or a method in its class."""
    module_name, _, path = place.partition(":")
    holder: Any = importlib.import_module(module_name)
    *outer, name = path.split(".")
    for part in outer:
        holder = getattr(holder, part)
    if outer:
        original = holder.__dict__[name]
        static = isinstance(original, staticmethod)
        made = wrap(original.__func__ if static else original)
        _set(undo, holder, name, staticmethod(made) if static else made)
        return
    function = getattr(holder, name)
    wrapped = wrap(function)
    for module_name_, module in list(sys.modules.items()):
        if module_name_.partition(".")[0] == "dbsp":
            for attribute in [key for key, value in vars(module).items() if value is function]:
                _set(undo, module, attribute, wrapped)


def _set(undo: ExitStack, holder: Any, name: str, value: Any) -> None:
    """Set an attribute until the recording ends."""
    undo.callback(setattr, holder, name, holder.__dict__[name])
    setattr(holder, name, value)
