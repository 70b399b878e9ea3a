"""Places for objects: a folder, or a bucket of an object store, with the few operations that copies need.

An object is immutable bytes under a name. Invariants:

1. A name is bound to its bytes at once and for ever. A reader finds the whole object or none, also after a crash of the
   writer. A `put` under a name that is taken does nothing, so a late writer changes nothing.
2. `put` returns when the object is durable.
3. `delete` of an absent object does nothing, so a repeat is harmless.

A place is a picklable value that names its address; connections are made in the process that uses it.

**Errors** `AwayError` where a place does not answer: the caller waits. `ConfigError` where it refuses.
"""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

from dbsp.disk import make_folder, private, sync_path
from dbsp.errors import AwayError, ConfigError, DataError

T = TypeVar("T")

RETRY_S = 5.0
"""How long an object store's client repeats a request by itself."""
TEMPORARY = ".new-"
PASSING = frozenset(
    {errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.ESTALE, errno.ETIMEDOUT, errno.ENOTCONN, errno.EHOSTDOWN}
)
"""Errors of a folder that an operator can fix while the service waits: a full disk, a file server that does not answer."""


class ObjectPlace(Protocol):
    """A place for objects."""

    @property
    def address(self) -> str:
        """Return the address, as messages show it."""
        ...

    def put(self, name: str, data: bytes | memoryview) -> None:
        """Store an object durably under a name, unless there is an object of that name."""
        ...

    def get(self, name: str) -> bytes:
        """Return an object; raise `DataError` if there is none."""
        ...

    def names(self, prefix: str) -> list[str]:
        """Return the names of all objects below a prefix such as "0/versions", sorted."""
        ...

    def sizes(self, prefix: str) -> dict[str, int]:
        """Return the bytes of each object below a prefix, by name."""
        ...

    def has_any(self, prefix: str) -> bool:
        """Return whether there is an object below a prefix.

        **Cost** one request, however many objects there are.
        """
        ...

    def delete(self, names: Iterable[str]) -> None:
        """Delete these objects."""
        ...


@dataclass(frozen=True, slots=True)
class FolderPlace:
    """Objects as files in a folder, best on a disk or a file server of its own."""

    folder: Path

    @property
    def address(self) -> str:
        """Return the folder."""
        return str(self.folder)

    def put(self, name: str, data: bytes | memoryview) -> None:
        """Write another file, sync it, and link it to its name."""
        file = self.folder / name
        made = file.with_name(f"{TEMPORARY}{uuid.uuid4().hex}")
        with self._answering():
            make_folder(file.parent)
            try:
                with open(made, "xb", opener=private) as stream:
                    stream.write(data)
                    stream.flush()
                    os.fsync(stream.fileno())
                with suppress(FileExistsError):
                    os.link(made, file)
            finally:
                made.unlink(missing_ok=True)
            sync_path(file.parent)

    def get(self, name: str) -> bytes:
        """Read the file."""
        with self._answering():
            try:
                return (self.folder / name).read_bytes()
            except FileNotFoundError:
                raise _no_object(self, name) from None

    def names(self, prefix: str) -> list[str]:
        """Walk the folder."""
        return sorted(self._names(prefix))

    def sizes(self, prefix: str) -> dict[str, int]:
        """Walk the folder."""
        found = {}
        for name in self._names(prefix):
            with self._answering(), suppress(FileNotFoundError):  # deleted meanwhile
                found[name] = (self.folder / name).stat().st_size
        return found

    def has_any(self, prefix: str) -> bool:
        """Walk the folder to the first file."""
        return next(self._names(prefix), None) is not None

    def _names(self, prefix: str) -> Iterator[str]:
        with self._answering():
            for place, _, names in os.walk(self.folder / prefix):
                for name in names:
                    if not name.startswith(TEMPORARY):
                        yield (Path(place) / name).relative_to(self.folder).as_posix()

    def delete(self, names: Iterable[str]) -> None:
        """Delete the files; folders stay, because another process may write into them."""
        with self._answering():
            for name in names:
                (self.folder / name).unlink(missing_ok=True)

    def _answering(self) -> _Answering:
        return _Answering(self.address)


class _Answering:
    """A block in which errors of a folder become those that a caller can act upon."""

    def __init__(self, address: str) -> None:
        self._address = address

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if not isinstance(error, OSError):
            return
        story = f"place={self._address} error={error.strerror}"
        if error.errno in PASSING:
            raise AwayError(
                f"the place for copies does not answer: {story}", "free space there, or repair it"
            ) from error
        raise ConfigError(
            f"the place for copies cannot be used: {story}", "correct `copies` in [checkpoint]"
        ) from error


@dataclass(frozen=True, slots=True)
class BucketPlace:
    """Objects in a bucket of S3, below the path of an address such as "s3://bucket/path"; `options` are those of `obstore`."""

    address: str
    options: Mapping[str, str] = field(default_factory=dict)

    def put(self, name: str, data: bytes | memoryview) -> None:
        """Upload the object."""

        def upload(store: Any, client: Any) -> None:
            with suppress(client.exceptions.AlreadyExistsError):
                client.put(store, name, bytes(data), mode="create")

        self._ask(upload)

    def get(self, name: str) -> bytes:
        """Return the downloaded object."""
        return bytes(self._ask(lambda store, client: client.get(store, name).bytes(), absent=name))

    def names(self, prefix: str) -> list[str]:
        """List the bucket."""
        return sorted(self.sizes(prefix))

    def sizes(self, prefix: str) -> dict[str, int]:
        """List the bucket."""
        pages = self._ask(lambda store, client: list(client.list(store, prefix=f"{prefix}/")))
        return {str(entry["path"]): int(entry["size"]) for page in pages for entry in page}

    def has_any(self, prefix: str) -> bool:
        """List one page of the bucket."""
        return self._ask(lambda store, client: any(client.list(store, prefix=f"{prefix}/")))

    def delete(self, names: Iterable[str]) -> None:
        """Delete the objects."""
        names = list(names)
        if names:
            self._ask(lambda store, client: client.delete(store, names))

    def _ask(self, request: Callable[[Any, Any], T], absent: str | None = None) -> T:
        import obstore  # noqa: PLC0415 - an extra, and a compiled library that only pipelines with copies load

        errors = obstore.exceptions
        try:
            return request(_opened(self.address, tuple(sorted(self.options.items()))), obstore)
        except FileNotFoundError:
            if absent is not None:
                raise _no_object(self, absent) from None
            raise self._no_bucket() from None
        except (errors.PermissionDeniedError, errors.UnauthenticatedError) as error:
            raise ConfigError(
                f"the place for copies refuses: place={self.address} error={_first_line(error)}",
                "give the rights to list, read, write and delete, or correct `copies_options` in [checkpoint]",
            ) from error
        except (errors.BaseError, OSError) as error:
            if "NoSuchBucket" in str(error):  # the answer to a request to list says so in its body alone
                raise self._no_bucket() from None
            raise AwayError(
                f"the place for copies does not answer: place={self.address} error={_first_line(error)}",
                "see that it runs and can be reached; a running service waits",
            ) from error

    def _no_bucket(self) -> ConfigError:
        return ConfigError(f"there is no such bucket: place={self.address}", "create it, or correct `copies`")


@cache
def _opened(address: str, options: tuple[tuple[str, str], ...]) -> Any:
    """Return this process's client of a bucket."""
    from obstore.store import S3Store  # noqa: PLC0415 - as above

    settings = dict(options)
    client: Any = {"timeout": timedelta(seconds=30), "connect_timeout": timedelta(seconds=RETRY_S)}
    if settings.pop("allow_http", "") == "true":
        client["allow_http"] = True
    retry: Any = {"max_retries": 3, "retry_timeout": timedelta(seconds=RETRY_S)}
    return S3Store.from_url(address, config=cast(Any, settings), client_options=client, retry_config=retry)


def object_place(address: str, options: Mapping[str, str], folder: Path) -> ObjectPlace:
    """Return the place of an address: "s3://bucket/path", or a folder, relative to `folder`.

    **Errors** `ConfigError` for an address of another kind, and where the library of object stores is not installed.
    """
    scheme, found, _ = address.partition("://")
    if not found:
        return FolderPlace((folder / address).absolute())
    if scheme != "s3":
        raise ConfigError(f"not a place for copies: checkpoint.copies={address}", "name a folder, or s3://bucket/path")
    try:
        import obstore  # noqa: F401, PLC0415 - whether it is there
    except ImportError as error:
        raise ConfigError(
            f"copies in an object store need a library: checkpoint.copies={address}", "install `dbsp-engine[copies]`"
        ) from error
    return BucketPlace(address.rstrip("/"), dict(options))


def _no_object(place: ObjectPlace, name: str) -> DataError:
    return DataError(f"an object is missing: place={place.address} name={name}", "restore the copies from elsewhere")


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0][:300]
