"""The OpenAPI description against the service: generated requests, right and wrong ones, on every route (schemathesis)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from dbsp.coordinator.service import Service
from tests.coordinator import shop
from tests.coordinator.shop import answering

schemathesis = pytest.importorskip("schemathesis", reason="needs schemathesis: pip install -e '.[test]'")
pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]

EXAMPLES = 25
ENDS = ("/v1/stop",)
"""Routes that would end the service."""
SHORT_S, WORKERS_MAX = 0.2, 3
REFUSED = [
    *schemathesis.config.SchemathesisConfig().projects.default.checks.negative_data_rejection.expected_statuses,
    431,
]
"""What it takes for a refusal, and the status of an address that is too long."""
NAMES = {"table": ["orders"], "view": ["per_customer", "large", "dead_letters"]}


@dataclass(frozen=True)
class Target:
    client: httpx.Client
    schema: Any
    folder: Path


def described(text: dict[str, Any]) -> Any:
    checks = {"negative_data_rejection": {"expected-statuses": REFUSED}}
    config = schemathesis.config.SchemathesisConfig.from_dict({"checks": checks})
    return schemathesis.openapi.from_dict(text, config=config)


@pytest.fixture
def target(folder: Path, tmp_path: Path) -> Iterator[Target]:
    with Service(shop.settings(folder, "http.requests_per_s_max=0")) as service, answering(service) as client:
        service.push("orders", shop.ORDERS)
        schema = described(client.get("/openapi.json").json())
        yield Target(client, schema, tmp_path)


def within_reason(case: Any, folder: Path) -> Any:
    """Bound what a request waits for and what it makes; all else stays as generated."""
    query, body = dict(case.query or {}), case.body
    for name in ("timeout_s", "wait_s"):
        if isinstance(query.get(name), int | float):
            query[name] = min(query[name], SHORT_S)
    case.query = query
    if isinstance(body, dict):
        if (
            isinstance(body.get("workers"), int | float) and body["workers"] > WORKERS_MAX
        ):  # 2973.0 is a whole number in JSON
            body["dry_run"] = True
        if case.path.endswith("backup") and isinstance(body.get("folder"), str) and body["folder"]:
            body["folder"] = f"{folder}/{body['folder'].replace('/', '-')}"
    return case


@pytest.mark.parametrize(("wrong", "paused"), [(False, False), (False, True), (True, False)])
def test_every_answer_is_as_described(target: Target, wrong: bool, paused: bool) -> None:
    """Where the service is paused, a push that waits is answered 202."""
    if paused:
        assert target.client.post("/v1/pause").status_code == 200
    mode = schemathesis.GenerationMode.NEGATIVE if wrong else schemathesis.GenerationMode.POSITIVE
    failures, tried = [], 0
    for found in target.schema.get_all_operations():
        operation = found.ok()
        if (
            operation.path in ENDS
            or (paused and operation.path == "/v1/resume")
            or (wrong and not has_input(operation))
        ):
            continue
        tried += 1
        try:
            hold(operation, mode, target)
        except BaseExceptionGroup as group:
            failures += [f"{operation.label}: {each}" for each in group.exceptions]
        except AssertionError as error:
            failures.append(f"{operation.label}: {type(error).__name__}: {error}")
    assert tried > 8
    assert not failures, "\n\n".join(failures)


def has_input(operation: Any) -> bool:
    return bool(list(operation.iter_parameters()) or operation.body)


def hold(operation: Any, mode: Any, target: Target) -> None:
    """Ask in many ways, and compare each answer with the description."""
    names = {name: st.sampled_from(known) for name, known in NAMES.items() if f"{{{name}}}" in operation.path}

    @settings(
        max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck),
        phases=[Phase.explicit, Phase.generate, Phase.shrink],
    )  # fmt: skip
    @given(operation.as_strategy(generation_mode=mode), st.fixed_dictionaries(names), st.booleans())
    def ask(case: Any, known: dict[str, str], is_known: bool) -> None:
        if is_known and known:
            case.path_parameters = known
        answer = within_reason(case, target.folder).call(base_url=str(target.client.base_url), timeout=60)
        case.validate_response(answer, excluded_checks=left_out())
        assert answer.status_code != 500

    ask()


def left_out() -> list[Any]:
    """No description can say which statements are SQL, which columns tables have, and what waits for a decision."""
    return [schemathesis.specs.openapi.checks.positive_data_acceptance]


def test_it_fails_for_a_description_that_is_wrong(target: Target) -> None:
    """Planted: an answer is not described, and one has another form."""
    for plant in ("status", "form"):
        text = target.client.get("/openapi.json").json()
        if plant == "status":
            del text["paths"]["/v1/query"]["post"]["responses"]["400"]
        else:
            text["components"]["schemas"]["Refusal"]["required"] = ["reason"]
        schema = described(text)
        with pytest.raises((AssertionError, BaseExceptionGroup)):
            hold(schema["/v1/query"]["POST"], schemathesis.GenerationMode.POSITIVE, target)
