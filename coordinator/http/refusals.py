"""Refusals of requests: the status of each kind of error, and the one form of the body."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from dbsp.errors import DbspError

STATUS = {
    "circuit": 400, "config": 400, "data": 422, "rows": 422, "position": 416, "anew": 416, "unavailable": 503, "away": 503,
    "no-room": 503, "overloaded": 429, "capacity": 413, "fenced": 409, "engine": 409,
}  # fmt: skip
RETRY_AFTER_S, TRY_AGAIN = 1, (429, 503)
REASONS = {
    400: "The request, a setting or the statement is wrong",
    401: "A token is needed, and none or an unknown one was given",
    403: "The token's scope does not allow it, or a web page of another site asks",
    404: "There is no such thing",
    405: "Not by this method",
    406: "No kind of body that `Accept` takes is offered here",
    408: "The rest of the body did not arrive in time",
    409: "Another coordinator, or another version of dbsp, has the pipeline",
    413: "A named limit was reached",
    416: "The steps were dropped, or never taken, or the view began anew (`code` is `anew`)",
    422: "The body or a parameter does not fit",
    429: "Too much waits, or too many ask: send it again later",
    431: "The head of the request is too large",
    500: "A bug of this project",
    503: "Something is away, or the service has ended: try again later",
}


class Problem(BaseModel):
    """The reason why a request was refused."""

    code: str = Field(description="the kind of the error: what the caller must do")
    message: str
    hint: str | None = Field(description="which setting or command helps")


class Refusal(BaseModel):
    """The body of every response that is an error."""

    error: Problem


def described() -> dict[int | str, dict[str, Any]]:
    """Return the error responses of every route, as the OpenAPI description has them.

    FastAPI makes a validator for each response of each route that names a model: 500 of them, most of what this
    application took to make. So one response names the model, and the others refer to it among the schemas.
    """
    named, *others = REASONS
    body = {"application/json": {"schema": {"$ref": f"#/components/schemas/{Refusal.__name__}"}}}
    return {
        named: {"model": Refusal, "description": REASONS[named]},
        **{status: {"content": body, "description": REASONS[status]} for status in others},
    }


def refuse(status: int, code: str, message: str, hint: str | None) -> JSONResponse:
    """Return the response of a refusal."""
    headers = {"Retry-After": str(RETRY_AFTER_S)} if status in TRY_AGAIN else None
    if status == 401:  # noqa: PLR2004 - HTTP's own
        headers = {"WWW-Authenticate": "Bearer"}
    return JSONResponse(
        {"error": {"code": code, "message": message, "hint": hint}}, status_code=status, headers=headers
    )


def not_offered(accept: str, offered: Sequence[str]) -> JSONResponse:
    """Return the refusal of an `Accept` header that takes none of the offered kinds of body."""
    return refuse(406, "config", f"no body of this kind: Accept={accept[:200]}", f"accept {', or '.join(offered)}")


def refusal_of(error: DbspError) -> JSONResponse:
    """Return the response for an error of this project."""
    status = 404 if error.message.startswith("no such") else STATUS.get(error.code, 500)
    return refuse(status, error.code, error.message, error.hint)
