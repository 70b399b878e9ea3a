"""Places for objects: a folder, and an S3 server that others wrote, keep one contract."""

from __future__ import annotations

import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from dbsp.errors import AwayError, ConfigError, DataError
from dbsp.object_places import ObjectPlace, object_place
from tests.spark.waiting import until

KEYS = {"access_key_id": "key", "secret_access_key": "secret", "region": "us-east-1", "allow_http": "true"}


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The address of an S3 server with one bucket."""
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    url = f"http://127.0.0.1:{port}"

    def made() -> bool:
        try:
            request = urllib.request.Request(f"{url}/bucket", method="PUT")
            with urllib.request.urlopen(request) as answer:
                return answer.status == 200
        except OSError:
            return False

    try:
        until(made, "the server answers")
        yield url
    finally:
        process.kill()
        process.wait()


@pytest.fixture(params=["folder", "bucket"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectPlace:
    if request.param == "folder":
        return object_place("place", {}, tmp_path)
    address = f"s3://bucket/{tmp_path.name}"
    return object_place(address, KEYS | {"endpoint": request.getfixturevalue("server")}, tmp_path)


def test_objects_are_there_as_they_were_put(place: ObjectPlace) -> None:
    assert place.names("a") == []
    place.put("a/b/one", b"1")
    place.put("a/two", memoryview(b"2" * 3_000_000))
    place.put("other/three", b"")
    assert place.names("a") == ["a/b/one", "a/two"]
    assert [place.has_any(prefix) for prefix in ("a", "a/b", "other", "b", "a/two", "oth")] == [
        True,
        True,
        True,
        *[False] * 3,
    ]
    assert place.get("a/two") == b"2" * 3_000_000
    assert place.get("other/three") == b""


def test_the_first_object_of_a_name_stays(place: ObjectPlace) -> None:
    place.put("name", b"first")
    place.put("name", b"second")
    assert place.get("name") == b"first"


def test_a_deleted_object_is_absent_and_deleting_it_again_does_nothing(place: ObjectPlace) -> None:
    place.put("a/one", b"1")
    place.put("a/two", b"2")
    for _ in range(2):
        place.delete(["a/one"])
    place.delete([])
    assert place.names("a") == ["a/two"]
    with pytest.raises(DataError, match=r"an object is missing.*a/one"):
        place.get("a/one")


def test_a_store_that_is_not_there_is_away(tmp_path: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    place = object_place("s3://bucket/p", KEYS | {"endpoint": f"http://127.0.0.1:{port}"}, tmp_path)
    with pytest.raises(AwayError, match="does not answer: place=s3://bucket/p"):
        place.get("name")


def test_a_bucket_that_is_not_there_is_a_wrong_setting(server: str, tmp_path: Path) -> None:
    place = object_place("s3://absent/p", KEYS | {"endpoint": server}, tmp_path)
    with pytest.raises(ConfigError, match="no such bucket"):
        place.put("name", b"")
    with pytest.raises(ConfigError, match="no such bucket"):
        place.names("p")


def test_a_folder_that_is_a_file_is_a_wrong_setting(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be used"):
        object_place("file", {}, tmp_path).put("name", b"")
