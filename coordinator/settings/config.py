"""Read `pipeline.toml`, environment and command line into values: the circuit, its data, inputs, outputs, checkpoints, addresses.

Each setting is looked up in this order: command line (`--set section.key=value`), environment (`DBSP_SECTION_KEY`), file,
default. The names contain their units. An unknown section or key is refused, with the nearest one that exists.

    [pipeline]    name, circuit = "circuit.py:flights" or "shop.sql", data_dir, workers, runtime = "spark" | "local"
    [spark]       master = "local[2]", conf = { "spark.executor.memory" = "2g" }, worker_silence_s
    [input]       kind, and the settings of that kind: see `dbsp.io.connectors`
    [output]      the same
    [delta]       directory, interval_s, views = ["sales"], keys = { sales = "shop, day" }, options, keep_hours
    [checkpoint]  interval_s, retention_s, copies = "s3://bucket/path" or "/other/disk", copies_options,
                  copies_required, copies_kept, copies_kept_s
    [step]        max_rows_per_step, max_step_bytes, max_step_delay_ms, failures_max
    [layout]      shards | dynamic_k, hosts = ["a", "b"], weights = { "b" = 2 }, common_disk,
                  strategy = "cold" | "warmup" | "icadd" | "redistribute", keys_per_step, acceptable_recovery_lag,
                  max_warmup_replicas, standbys = ["/other/disk"], standbys_per_worker, zones, host_lost_s
    [autoscale]   enabled, workers_min, workers_max, step_latency_ms_max, backlog_rows_max, window_s, cooldown_s,
                  hosts_command = ["program"], hosts_timeout_s
    [http]        enabled, host, port, token, read_token, ingest_token, admin_token, token_files = { read = "file" },
                  certificate, key, ca, server_name, access_log, max_body_bytes, max_decoded_bytes, max_push_rows,
                  bad_rows_max, connections_max, followers_max, header_timeout_s, body_timeout_s, requests_per_s_max
    [postgres]    port, host, connections_max
    [flight]      port, host, connections_max
    [query]       memory_mb_max, timeout_s, threads, rows_max, result_mb_max, at_once_max,
                  lease_s, leases_max
    [letters]     rows_max, mb_max, days_max
    [log]         path, file_bytes_max, files_kept, steps
    [coordinator] lease_s, standby = "auto" | "process" | "spark"
    [traces]      endpoint, steps_per_s_max, headers = { authorization = "…" }
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from dbsp.coordinator.decisions.autoscale import AutoscaleSection
from dbsp.coordinator.decisions.limits import StepLimits
from dbsp.coordinator.flight.section import FlightSection
from dbsp.coordinator.http.section import HttpSection
from dbsp.coordinator.postgres.section import PostgresSection
from dbsp.coordinator.settings.layout_section import LayoutSection
from dbsp.diagnostics.secrets import HIDDEN
from dbsp.errors import ConfigError
from dbsp.io.connectors import KINDS, InputKind, OutputKind, configured, types_of
from dbsp.io.connectors.embedded import EmbeddedInput, EmbeddedOutput
from dbsp.io.connectors.kind import Residence, columns_of
from dbsp.io.connectors.registry import Named, named
from dbsp.object_places import ObjectPlace, object_place
from dbsp.runtime.spark.timeouts import check_timeouts
from dbsp.settings import at_least, at_most, near, one_of

ENVIRONMENT_PREFIX = "DBSP_"
RUNTIMES = ("spark", "local")
PIPELINE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
SHOWN_CHARS = 20
SECRET_KEY = re.compile("token|login|registry|properties|options|password|secret|headers")
"""Settings whose values are not shown: secrets, addresses that may contain one, and values for other programs."""
MEBIBYTE = 1 << 20
A_DAY_S = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSection:
    """The circuit, data folder and runtime; `workers` applies to a new pipeline: later `coordinator rescale` sets the number."""

    circuit: str
    name: str = "pipeline"
    data_dir: Path = Path("data")
    workers: int = 2
    runtime: str = "spark"

    def __post_init__(self) -> None:
        """Refuse an unknown runtime, a number of workers below 1, and a name that no topic or folder can have."""
        if not PIPELINE_NAME.fullmatch(self.name):
            raise ConfigError(
                f"not a name of a pipeline: pipeline.name={self.name!r}",
                "use letters, digits, `.`, `_` and `-`, neither `.` nor `-` first, 100 at most: topics and folders are called so",
            )
        one_of("pipeline.runtime", self.runtime, RUNTIMES)
        at_least("pipeline.workers", self.workers, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSection:
    """The address of Spark, or how to start it; `conf` is passed on as it is.

    Spark gives up an executor after `spark.network.timeout`, by default 1.5 times `worker_silence_s`. It then runs the
    executor's tasks a second time, so `worker_silence_s` must be below that time-out.
    """

    master: str = "local[2]"
    conf: Mapping[str, str] = field(default_factory=dict)
    worker_silence_s: float = 120.0

    def __post_init__(self) -> None:
        """Refuse a `worker_silence_s` that every task would exceed, and one that is not below Spark's own time-out."""
        at_least("spark.worker_silence_s", self.worker_silence_s, 1)
        check_timeouts(self.worker_silence_s, self.conf)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaSection:
    """Views as Delta tables in `directory`, a folder or an address such as "s3://bucket/shop"; empty for none.

    `options` are those of the object store. A view with a key in `keys` ("shop, day") becomes a table of its rows; any other
    becomes a table of its changes. They are written every `interval_s`. Files that no version of the last `keep_hours` uses
    are deleted from time to time.
    """

    directory: str = ""
    interval_s: float = 60.0
    views: list[str] = field(default_factory=list)
    keys: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    keep_hours: int = 168

    def __post_init__(self) -> None:
        """Refuse intervals below their minimum, and keys of views that `views` does not name."""
        at_least("delta.interval_s", self.interval_s, 0.001)
        at_least("delta.keep_hours", self.keep_hours, 1)
        for name in self.keys:
            if self.views and name not in self.views:
                raise ConfigError(
                    f"delta.keys names a view that delta.views does not: view={name}",
                    "add the view to `views`, or remove its keys",
                )

    def key_columns(self) -> dict[str, tuple[str, ...]]:
        """Return the columns of each view's key."""
        return columns_of(self.keys)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSection:
    """The interval of commits of state; logs below the oldest openable checkpoint are kept `retention_s` longer.

    `copies` is a place that holds each published version of every worker, too. It is a folder, best on another machine's disk,
    or an object store such as "s3://bucket/path". A worker that loses its database is made again from there. `copies_options`
    are those of the object store, for example `endpoint`, `region`, `access_key_id` and `allow_http`.

    The newest `copies_kept` checkpoints stay in the place, others for `copies_kept_s` seconds: a restore can choose among them.

    With `copies_required = 0` a checkpoint does not wait for its copy, which may lag behind. A lost disk then takes all workers
    back to the newest checkpoint that is whole in the place; steps since then run again.
    """

    interval_s: float = 10.0
    retention_s: float = 0.0
    copies: str = ""
    copies_options: Mapping[str, str] = field(default_factory=dict)
    copies_required: int = 1
    copies_kept: int = 1
    copies_kept_s: float = 0.0

    def __post_init__(self) -> None:
        """Refuse negative times."""
        at_least("checkpoint.interval_s", self.interval_s, 0.001)
        at_least("checkpoint.retention_s", self.retention_s, 0)
        at_least("checkpoint.copies_kept", self.copies_kept, 1)
        at_least("checkpoint.copies_kept_s", self.copies_kept_s, 0)
        if self.copies_required not in (0, 1):
            found = f"checkpoint.copies_required={self.copies_required}"
            raise ConfigError(f"`copies_required` must be 0 or 1: {found}", "write 1 (checkpoints wait for it), or 0")

    @property
    def copies_lag(self) -> bool:
        """Return whether checkpoints do not wait for their copies."""
        return bool(self.copies) and self.copies_required == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSection:
    """The limits of one step, and the number of failures in a row that ends the service."""

    max_rows_per_step: int = StepLimits().max_rows_per_step
    max_step_bytes: int = StepLimits().max_step_bytes
    max_step_delay_ms: int = StepLimits().max_step_delay_ms
    failures_max: int = 5

    def __post_init__(self) -> None:
        """Refuse limits that would stop the pipeline."""
        self.limits()
        at_least("step.failures_max", self.failures_max, 0)

    def limits(self) -> StepLimits:
        """Return the limits as the cutter of steps takes them."""
        return StepLimits(
            max_rows_per_step=self.max_rows_per_step, max_step_bytes=self.max_step_bytes,
            max_step_delay_ms=self.max_step_delay_ms,
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class QuerySection:
    """Bounds of one ad-hoc query, and of the number that run at a time; further ones wait for `timeout_s`, then fail.

    A read of a view may take `lease_s`; reads of `leases_max` different steps run at a time.
    """

    memory_mb_max: int = 512
    timeout_s: float = 10.0
    threads: int = 1
    rows_max: int = 1_000_000
    result_mb_max: int = 128
    at_once_max: int = 2
    lease_s: float = 60.0
    leases_max: int = 16

    def __post_init__(self) -> None:
        """Refuse bounds under which no query can run."""
        at_least("query.memory_mb_max", self.memory_mb_max, 16)
        at_least("query.timeout_s", self.timeout_s, 0.1)
        at_most("query.timeout_s", self.timeout_s, A_DAY_S)
        at_least("query.lease_s", self.lease_s, 0.1)
        at_most("query.lease_s", self.lease_s, A_DAY_S)
        for name in ("threads", "rows_max", "result_mb_max", "at_once_max", "leases_max"):
            at_least(f"query.{name}", getattr(self, name), 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class LettersSection:
    """The bounds on dead letters kept for queries and replays, whatever the output does; the oldest are dropped first.

    At most `rows_max` letters, of `mb_max` MiB, not older than `days_max` days.
    """

    rows_max: int = 100_000
    mb_max: int = 256
    days_max: float = 30.0

    def __post_init__(self) -> None:
        """Refuse bounds under which no letter is ever seen."""
        at_least("letters.rows_max", self.rows_max, 1)
        at_least("letters.mb_max", self.mb_max, 1)
        at_least("letters.days_max", self.days_max, 0.001)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSection:
    """The file of structured logs; an empty `path` means `<data_dir>/coordinator.log`.

    A file of more than `file_bytes_max` is renamed to `<name>.1`, and `files_kept` of those are kept. With
    `file_bytes_max = 0` it grows without end. With `steps` every step has a line.
    """

    path: str = ""
    file_bytes_max: int = 64 * MEBIBYTE
    files_kept: int = 4
    steps: bool = False

    def __post_init__(self) -> None:
        """Refuse a negative file size, and a count of kept files below 1."""
        at_least("log.file_bytes_max", self.file_bytes_max, 0)
        at_least("log.files_kept", self.files_kept, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class TracesSection:
    """The section [traces]: where spans are sent, such as "http://127.0.0.1:4318/v1/traces"; without it there are none.

    At most `steps_per_s_max` steps a second are traced, and all checkpoints. `headers` are sent with each request.
    """

    endpoint: str = ""
    steps_per_s_max: float = 10.0
    headers: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse an `endpoint` that is no HTTP address, and a rate that traces no step."""
        if self.endpoint and not self.endpoint.startswith(("http://", "https://")):
            raise ConfigError(
                f"not an address: traces.endpoint={self.endpoint}",
                "write the whole address of the collector, such as http://127.0.0.1:4318/v1/traces",
            )
        at_least("traces.steps_per_s_max", self.steps_per_s_max, 0.001)


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorSection:
    """When a standby of the coordinator starts, and what it prepares.

    Where the logs are on Kafka, the coordinator writes heartbeats. A standby starts when none has come for `lease_s`. It
    starts at once when the coordinator's process ends on its own host.

    `standby` is what it has ready: a "process" with the circuit and its kernels, or also an application of "spark". With
    "auto" that is an application where Spark is local. On a cluster it would take cores while it waits.
    """

    lease_s: float = 5.0
    standby: str = "auto"

    def __post_init__(self) -> None:
        """Refuse a lease so short that a busy machine would exceed it, and unknown words."""
        at_least("coordinator.lease_s", self.lease_s, 1)
        one_of("coordinator.standby", self.standby, ("auto", "process", "spark"))


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradeSection:
    """The time after an upgrade in which the older version can still continue, and the bound on state that a proof copies.

    The first checkpoint that is published `rollback_window_s` after this version's first one ends this time: the next
    start writes this version's own formats. Where workers' disks are on other hosts, a state of more than
    `max_proof_bytes` is not copied for a proof before an upgrade; 0 copies nothing.
    """

    rollback_window_s: float = 604_800.0
    max_proof_bytes: int = 1 << 30

    def __post_init__(self) -> None:
        """Refuse a negative time or size."""
        at_least("upgrade.rollback_window_s", self.rollback_window_s, 0)
        at_least("upgrade.max_proof_bytes", self.max_proof_bytes, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """All sections; `folder` is the folder of the settings' file, in which relative paths start."""

    pipeline: PipelineSection
    spark: SparkSection = field(default_factory=SparkSection)
    input: InputKind = field(default_factory=EmbeddedInput)
    output: OutputKind = field(default_factory=EmbeddedOutput)
    delta: DeltaSection = field(default_factory=DeltaSection)
    checkpoint: CheckpointSection = field(default_factory=CheckpointSection)
    step: StepSection = field(default_factory=StepSection)
    layout: LayoutSection = field(default_factory=LayoutSection)
    autoscale: AutoscaleSection = field(default_factory=AutoscaleSection)
    http: HttpSection = field(default_factory=HttpSection)
    postgres: PostgresSection = field(default_factory=PostgresSection)
    flight: FlightSection = field(default_factory=FlightSection)
    query: QuerySection = field(default_factory=QuerySection)
    letters: LettersSection = field(default_factory=LettersSection)
    log: LogSection = field(default_factory=LogSection)
    coordinator: CoordinatorSection = field(default_factory=CoordinatorSection)
    traces: TracesSection = field(default_factory=TracesSection)
    upgrade: UpgradeSection = field(default_factory=UpgradeSection)
    folder: Path = Path()
    names: tuple[Named, ...] = ()
    """The tables and views that the settings of inputs and outputs name."""
    origins: Mapping[str, str] = field(default_factory=dict, compare=False)
    """Where each given setting was found, by `section.key`; a setting without origin has its default."""

    @property
    def data_dir(self) -> Path:
        """Return the folder of everything durable, absolute."""
        return (self.folder / self.pipeline.data_dir).absolute()

    @property
    def log_file(self) -> Path:
        """Return the file of the event log, absolute."""
        return ((self.folder / self.log.path) if self.log.path else (self.data_dir / "coordinator.log")).absolute()

    @property
    def residence(self) -> Residence:
        """Return the facts about the pipeline that inputs and outputs use."""
        return Residence(data_dir=self.data_dir, pipeline=self.pipeline.name, folder=self.folder)

    def delta_uri(self, view: str) -> str:
        """Return the address or the absolute folder of a view's Delta table."""
        directory = self.delta.directory
        if "://" in directory:
            return f"{directory.rstrip('/')}/{view}"
        return str((self.folder / directory / view).absolute())

    @property
    def copies(self) -> ObjectPlace | None:
        """Return the place for copies of checkpoints; None if there is none."""
        section = self.checkpoint
        return object_place(section.copies, section.copies_options, self.folder) if section.copies else None

    @property
    def standbys(self) -> tuple[Path, ...]:
        """Return the folders of this pipeline's standbys, absolute."""
        return tuple((self.folder / folder / self.pipeline.name).absolute() for folder in self.layout.standbys)


SECTIONS: Mapping[str, type[Any]] = {
    name: hint for name, hint in get_type_hints(Config).items() if name not in ("folder", "names", "origins")
}  # fmt: skip


@cache
def _types(section: str) -> Mapping[str, Any]:
    """Return the types of a section's settings: of inputs and outputs those of every kind."""
    if section in KINDS:
        return {"kind": str, **types_of(KINDS[section])}
    hints = get_type_hints(SECTIONS[section])
    return {each.name: hints[each.name] for each in fields(SECTIONS[section])}


def load_config(path: Path, *, overrides: Sequence[str] = (), environment: Mapping[str, str] | None = None) -> Config:
    """Return the settings of a file, the environment and the command line.

    **Shape** each override is `section.key=value`.
    **Errors** `ConfigError` for an unreadable file, an unknown section or key, or a value of another type.
    """
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8").removeprefix("\ufeff"))  # editors' byte order mark
    except FileNotFoundError:
        raise ConfigError(
            f"no such file: file={path}",
            "name the settings: `coordinator --pipeline FILE …`, or `--url` of the service; `dbsp-coordinator FILE`",
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise ConfigError(f"the settings cannot be read: file={path} error={error}") from error
    return make_config(found, folder=path.parent, overrides=overrides, environment=environment, source=str(path))


def make_config(
    found: Mapping[str, Any],
    *,
    folder: Path = Path(),
    overrides: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    source: str = "settings",
) -> Config:
    """Return the settings out of a mapping of sections, as `load_config` reads it from a file."""
    sections: dict[str, dict[str, Any]] = {name: {} for name in SECTIONS}
    for name, content in found.items():
        if not isinstance(content, Mapping):
            hint = f"write its keys below [{name}]" if name in SECTIONS else _home(name) or near(name, SECTIONS)
            raise ConfigError(f"not a section: name={name} file={source}", hint)
        _known("section", name, SECTIONS, source)
        for key, value in content.items():
            sections[name][_key(name, key, source)] = value
    origins: dict[tuple[str, str], str] = {}
    for place, text, origin in (
        *_from_environment(os.environ if environment is None else environment),
        *map(_from_override, overrides),
    ):
        section, key = place
        sections[section][key], origins[place] = _parse(section, key, text, origin), origin
    if "circuit" not in sections["pipeline"]:
        raise ConfigError(
            f"no circuit is named: file={source}",
            'write `circuit = "file.py:attribute"` or `circuit = "file.sql"` below [pipeline]',
        )
    made: dict[str, Any] = {}
    names: list[Named] = []
    for name, values in sections.items():
        checked = {key: _checked(name, key, value, origins.get((name, key), source)) for key, value in values.items()}
        made[name] = configured(name, checked) if name in KINDS else SECTIONS[name](**checked)
        names += named(name, checked) if name in KINDS else []
    given = {f"{name}.{key}": origins.get((name, key), source) for name, values in sections.items() for key in values}
    return Config(folder=folder.absolute(), names=tuple(names), origins=given, **made)


def _from_environment(environment: Mapping[str, str]) -> list[tuple[tuple[str, str], str, str]]:
    """Return the settings in the environment as ((section, key), text, variable).

    `DBSP_HTTP_PORT=1` sets `http.port`. A variable whose section does not exist is ignored: it belongs to another program.
    """
    found = []
    for name, text in sorted(environment.items()):
        if not name.startswith(ENVIRONMENT_PREFIX):
            continue
        section, _, key = name.removeprefix(ENVIRONMENT_PREFIX).lower().partition("_")
        if section in SECTIONS:
            found.append(((section, _key(section, key, name)), text, name))
    return found


def _from_override(text: str) -> tuple[tuple[str, str], str, str]:
    place, equals, value = text.partition("=")
    section, dot, key = place.strip().partition(".")
    if not equals or not dot:
        shown = place if equals else text[:SHOWN_CHARS]
        raise ConfigError(f"not a setting: --set {shown}", "write --set section.key=value")
    _known("section", section, SECTIONS, "--set")
    return (section, _key(section, key, "--set")), value.strip(), f"--set {place}"


def _key(section: str, key: str, source: str) -> str:
    _known("key", key, _types(section), f"[{section}] of {source}")
    return key


def _known(kind: str, name: str, known: Mapping[str, Any], source: str) -> None:
    if name not in known:
        raise ConfigError(f"unknown {kind}: {kind}={name} in={source}", _home(name) or near(name, known))


def _home(key: str) -> str:
    """Return a hint at the sections that have this key; empty if none has it."""
    homes = [f"[{name}]" for name in SECTIONS if key in _types(name)]
    return f"`{key}` belongs below {' or '.join(homes)}" if homes else ""


def _checked(section: str, key: str, value: Any, source: str) -> Any:
    """Return the value as the setting's type, or raise `ConfigError`; booleans are not numbers."""
    kind = _kind(section, key)
    origin = get_origin(kind) or kind
    if kind is Path and isinstance(value, str):
        return Path(value)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if origin is Mapping and isinstance(value, Mapping):
        return {str(key): str(item) for key, item in value.items()}
    if isinstance(origin, type) and isinstance(value, origin) and not (origin is int and isinstance(value, bool)):
        return value
    shown = HIDDEN if is_secret(section, key) else repr(value)
    hint = "write it in quotes" if kind is str and isinstance(value, int | float) else None
    raise ConfigError(
        f"a setting of another type: {section}.{key}={shown} expected={_in_words(kind)} in={source}", hint
    )


def is_secret(section: str, key: str) -> bool:
    """Return whether a setting's value, or a part of it, may be a secret."""
    return bool(SECRET_KEY.search(key)) or (section, key) == ("spark", "conf")


def _parse(section: str, key: str, text: str, origin: str) -> Any:
    """Parse text from the environment or the command line: as a string if the setting is one, else as a TOML value.

    **Errors** `ConfigError` if the text is not a TOML value.
    """
    hint = _types(section)[key]
    if hint in (str, Path, str | None):
        return text
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        raise ConfigError(
            f"a setting of another type: {origin}={HIDDEN if SECRET_KEY.search(key) else repr(text)}"
            f" expected={_in_words(_kind(section, key))}"
        ) from None


def _kind(section: str, key: str) -> Any:
    """Return the type of a setting, without the None of a setting that may be absent."""
    hint = _types(section)[key]
    (kind,) = (each for each in (get_args(hint) if isinstance(hint, UnionType) else (hint,)) if each is not NoneType)
    return kind


_IN_WORDS: Mapping[Any, str] = {
    bool: "true or false", int: "a whole number", float: "a number", str: "text", Path: "a path",
    tuple: 'a list such as ["a", "b"]', list: 'a list such as ["a", "b"]', Mapping: 'a table such as {"a" = "b"}',
}  # fmt: skip


def _in_words(kind: Any) -> str:
    """Return the words that name a type of settings."""
    return _IN_WORDS[get_origin(kind) or kind]
