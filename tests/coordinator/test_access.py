"""Who may ask: raw hosts and origins, tokens with scopes, TLS; and that no secret is told."""

from __future__ import annotations

import ipaddress
import json
import re
import ssl
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography import x509
from hypothesis import given
from hypothesis import strategies as st

from dbsp.coordinator.http.access import refusal
from dbsp.coordinator.http.listen import HttpServer, bind
from dbsp.coordinator.http.tokens import FOR_ADMINS, Tokens, allowing, load_tokens
from dbsp.coordinator.service import Service
from dbsp.coordinator.settings.config import HttpSection, load_config, make_config
from dbsp.errors import ConfigError, UnavailableError
from dbsp.io.formats.avro.registry import Registry
from tests.certificates import certificate
from tests.coordinator.shop import answering, script, settings

NOBODY = Tokens()
OWN_HOSTS = [b"localhost", b"LOCALHOST:80", b"127.0.0.1:8080", b"[::1]", b"[::1]:8080"]
OTHER_HOSTS = [
    b"a{b.example", b"evil.example", b"", b"localhost.evil.example", b"localhost:80:80", b"localhost:", b"127.0.0.1.evil.example",
    b"localhost@evil.example", b"evil.example#localhost", b"localhost/", b"127.1", b"0.0.0.0", b"[::1", b"::1", b"local\xe9host",
    b"localhost evil.example", b"localhost,evil.example", b"[::ffff:127.0.0.1]", b"127.0.0.1:80x",
]  # fmt: skip


def refused(host: list[bytes], method: str = "POST", **more: bytes) -> bool:
    headers = [*((b"host", each) for each in host), *((name.replace("_", "-").encode(), v) for name, v in more.items())]
    return refusal(NOBODY, method, "/v1/stop", "http", headers) is not None


def test_hosts_of_this_machine_are_let_in_and_all_others_are_not() -> None:
    assert not any(refused([host]) for host in OWN_HOSTS)
    assert all(refused([host]) for host in OTHER_HOSTS)
    assert refused([])
    assert refused([b"localhost", b"evil.example"])


@given(
    st.binary(max_size=20)
    | st.sampled_from(OWN_HOSTS).flatmap(lambda host: st.binary(min_size=1, max_size=3).map(host.__add__))
)
def test_a_host_that_is_not_plainly_ours_is_refused(host: bytes) -> None:
    ours = re.fullmatch(rb"(localhost|127\.0\.0\.1|\[::1\])(:\d{1,5})?", host.lower()) is not None
    assert refused([host]) is not ours


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": b"null"},
        {"origin": b"http://evil.example"},
        {"origin": b"https://localhost:8080"},
        {"origin": b"http://localhost:3000"},
        {"origin": b"http://localhost"},
        {"origin": b""},
        {"sec_fetch_site": b"cross-site"},
        {"sec_fetch_site": b"same-site"},
        {"sec_fetch_site": b"cross-site", "sec_fetch_mode": b"navigate"},
    ],
)
def test_pages_of_other_origins_are_refused(headers: dict[str, bytes]) -> None:
    assert refused([b"localhost:8080"], **headers)


def test_our_own_page_and_links_to_it_are_let_in() -> None:
    assert not refused([b"localhost:8080"], origin=b"http://localhost:8080", sec_fetch_site=b"same-origin")
    assert not refused([b"localhost:8080"], "GET", sec_fetch_site=b"cross-site", sec_fetch_mode=b"navigate")
    assert refused([b"localhost:8080"], "GET", sec_fetch_site=b"cross-site", sec_fetch_mode=b"no-cors")


def test_over_a_socket_a_host_that_does_not_parse_is_refused(client: httpx.Client) -> None:
    for host in ("a{b.example", "evil.example", "localhost:x"):
        answer = client.post("/v1/tables/orders/rows", json=[], headers={"Host": host})
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "forbidden"), host
    assert client.get("/v1/status").json()["lag_rows"] == 0


# --- tokens ---------------------------------------------------------------------------------------------------------


def test_each_scope_may_do_what_it_is_for_and_no_more(folder: Path) -> None:
    (folder / "writers").write_text("one-of-two\n\nother-of-two\n")
    given_ = ("http.read_token=r", "http.admin_token=a", "http.token=all")
    config = make_config(
        {"pipeline": {"circuit": "circuit.py:pipeline", "runtime": "local"},
         "http": {"port": 0, "token_files": {"ingest": "writers"}}},
        folder=folder, overrides=given_, environment={},
    )  # fmt: skip
    with Service(config) as service, answering(service) as client:
        routes = client.get("/openapi.json", headers={"Authorization": "Bearer r"}).json()["paths"]

        def status(method: str, path: str, token: str) -> int:
            """Asked for in a way that changes nothing, whoever may ask."""
            headers = {"Authorization": f"Bearer {token}", "Dbsp-Nothing": "1"}
            return client.request(method, path.replace("{table}", "orders"), headers=headers).status_code

        tried = [(method.upper(), path) for path, methods in routes.items() for method in methods]
        assert len(tried) > 15
        for method, path in tried:
            pushes = path in ("/v1/transactions", "/v1/tables/{table}/rows")
            reads = (method == "GET" and path not in FOR_ADMINS) or path == "/v1/query"
            public = path in ("/healthz", "/readyz")
            may = {
                "r": reads, "one-of-two": pushes or path == "/v1/completion", "other-of-two": pushes or path == "/v1/completion",
                "a": True, "all": True,
            }  # fmt: skip
            for token, allowed in may.items():
                expected = {200, 400, 422, 503} if allowed or public else {403}
                assert status(method, path, token) in expected, (method, path, token)
            assert public or status(method, path, "wrong") == 401
        assert client.get("/").status_code == client.get("/healthz").status_code == 200
        for header in ("all", "Basic all", "Bearer", "Bearer  all", "Bearer all, Bearer all"):
            assert client.get("/v1/status", headers={"Authorization": header}).status_code == 401, header
        assert client.get("/v1/status", headers={"Authorization": "bearer all"}).status_code == 200


def test_what_is_not_listed_needs_the_widest_scope() -> None:
    assert allowing("POST", "/v1/anything-new") == allowing("DELETE", "/v1/views/large") == {"admin"}
    assert allowing("PUT", "/v1/query") == allowing("POST", "/v1/tables/a/b/rows") == {"admin"}


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "a file of tokens is empty"), ("a b\n", "not a token: file=.*secrets token=1"), (None, "cannot be read")],
)
def test_a_file_of_tokens_that_is_none_is_named_without_its_tokens(
    tmp_path: Path, text: str | None, message: str
) -> None:
    if text is not None:
        (tmp_path / "secrets").write_text(text)
    with pytest.raises(ConfigError, match=message) as caught:
        load_tokens(HttpSection(token_files={"read": "secrets"}), tmp_path)
    assert "a b" not in str(caught.value)


def test_beyond_this_host_any_token_will_do_but_none_will_not() -> None:
    assert HttpSection(host="0.0.0.0", token_files={"admin": "file"}).needs_token
    with pytest.raises(ConfigError, match="refusing to listen beyond this host without a token"):
        HttpSection(host="0.0.0.0")
    with pytest.raises(ConfigError, match="unknown scope"):
        HttpSection(token_files={"write": "file"})


def test_every_request_is_a_line_of_the_access_log_without_secrets(folder: Path) -> None:
    with (
        Service(settings(folder, "http.token=hush-hush", "http.access_log=access.log")) as service,
        answering(service) as client,
    ):
        client.get("/v1/status?secret=query", headers={"Authorization": "Bearer hush-hush"})
        client.get("/v1/status", headers={"Authorization": "Bearer wrong-one"})
    text = (folder / "access.log").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    assert [(line["method"], line["path"], line["status"]) for line in lines] == [
        ("GET", "/v1/status", 400), ("GET", "/v1/status", 401)
    ]  # fmt: skip
    assert not re.search("hush|wrong|secret", text)
    assert (folder / "access.log").stat().st_mode & 0o777 == 0o600


# --- TLS ------------------------------------------------------------------------------------------------------------


def test_over_tls_with_the_command_line(folder: Path) -> None:
    certificate(folder, "shop", x509.DNSName("shop.example"), x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
    certificate(folder, "other", x509.DNSName("localhost"))
    text = (folder / "pipeline.toml").read_text()
    (folder / "pipeline.toml").write_text(
        text.replace("port = 0", 'port = 0\ntoken = "hush"\ncertificate = "shop.pem"\nkey = "shop.key"')
    )
    with Service(load_config(folder / "pipeline.toml", environment={})) as service:
        config = service.config
        from dbsp.coordinator.http.app import make_app  # noqa: PLC0415 - beside the server that is not a client's

        server = HttpServer(make_app(service), bind(config.http), config.data_dir, folder=config.folder)
        server.announce()
        server.start()
        try:
            assert server.url.startswith("https://127.0.0.1:")
            found = script("cli", "status", folder=folder)
            assert (found.returncode, "shop: Running" in found.stdout) == (0, True), found.stderr
            named = script("cli", "--pipeline", "pipeline.toml", "query", "select 1 as n", folder=folder)
            assert named.returncode == 0, named.stderr
            far = ("--url", server.url, "--token", "hush")
            assert script("cli", *far, "--ca", "shop.pem", "status", folder=folder).returncode == 0
            for more in ((), ("--ca", "other.pem")):
                untrusted = script("cli", *far, *more, "status", folder=folder)
                assert untrusted.returncode == 2
                assert "the service's certificate is not trusted" in untrusted.stderr
            with pytest.raises(httpx.HTTPError):
                httpx.get(server.url.replace("https", "http"), trust_env=False)
            context = ssl.create_default_context(cafile=folder / "shop.pem")
            with httpx.Client(verify=context, trust_env=False) as client:
                answer = client.get(server.url + "/healthz", extensions={"sni_hostname": "shop.example"})
                assert answer.json() == {"alive": True}
        finally:
            server.stop()


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (
            {"certificate": "absent.pem", "key": "shop.key"},
            "a file of TLS cannot be read: file=.*absent.pem error=No such file",
        ),
        ({"certificate": "shop.pem", "key": "other.key"}, "not a certificate and its key: .*shop.pem key=.*other.key"),
        ({"certificate": "shop.key", "key": "shop.pem"}, "not a certificate and its key"),
    ],
)
def test_files_of_tls_that_do_not_fit_are_named(tmp_path: Path, files: dict[str, str], message: str) -> None:
    certificate(tmp_path, "shop", x509.DNSName("localhost"))
    certificate(tmp_path, "other", x509.DNSName("localhost"))
    with bind(HttpSection(port=0, **files)) as bound, pytest.raises(ConfigError, match=message):
        HttpServer(None, bound, tmp_path, folder=tmp_path)


def test_half_of_tls_is_refused() -> None:
    with pytest.raises(ConfigError, match="TLS needs both"):
        HttpSection(certificate="shop.pem")


# --- secrets --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sections", "overrides", "environment"),
    [
        ({"http": {"token": 12345678}}, (), {}),
        ({"http": {"read_token": [12345678]}}, (), {}),
        ({"http": {"token_files": "12345678"}}, (), {}),
        ({"input": {"registry_login": 12345678}}, (), {}),
        ({"input": {"registry": ["http://me:12345678@host"]}}, (), {}),
        ({"input": {"properties": "sasl.password=12345678"}}, (), {}),
        ({"delta": {"options": "AWS_SECRET=12345678"}}, (), {}),
        ({"spark": {"conf": "spark.authenticate.secret=12345678"}}, (), {}),
        ({}, ("token=12345678",), {}),
        ({}, ("http.tokens=12345678",), {}),
        ({}, ("http.token_files=12345678",), {}),
        ({}, (), {"DBSP_HTTP_TOKENS": "12345678"}),
        ({}, (), {"DBSP_INPUT_PROPERTIES": "12345678"}),
        ({"http": {"token": "12345678 with a space"}}, (), {}),
    ],
)
def test_an_error_of_settings_tells_no_secret(
    sections: dict[str, Any], overrides: tuple[str, ...], environment: dict[str, str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        make_config({"pipeline": {"circuit": "c.py:c"}, **sections}, overrides=overrides, environment=environment)
    assert "12345678" not in str(caught.value)


def test_no_representation_holds_a_secret() -> None:
    config = make_config(
        {
            "pipeline": {"circuit": "c.py:c"},
            "http": dict.fromkeys(("token", "read_token", "ingest_token", "admin_token"), "12345678"),
            "input": {"registry_login": "me:12345678"},
        },
        environment={},
    )
    assert "12345678" not in repr(config)


def test_a_password_in_an_address_is_not_told() -> None:
    with pytest.raises(UnavailableError) as caught:
        Registry("http://me:pa@ss/word@127.0.0.1:1").schema(7)
    assert not re.search(r"me:|pa@|ss/word", str(caught.value))
    with pytest.raises(UnavailableError, match=r"registry=http://\*\*\*@127.0.0.1:1") as caught:
        Registry("http://me:12345678@127.0.0.1:1").schema(7)
    assert "12345678" not in str(caught.value)
