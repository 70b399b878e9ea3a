"""Check passwords by SCRAM-SHA-256 (RFC 5802, RFC 7677), with the tokens as passwords, without I/O.

The client proves that it has a token without sending it. Every known token is compared with the proof: they share one salt,
which is drawn when the tokens are read. Names of users are ignored.

Left out: channel binding (SCRAM-SHA-256-PLUS), and SASLprep, of which tokens have no need: they are ASCII.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from secrets import token_bytes

MECHANISM = "SCRAM-SHA-256"
ITERATIONS = 4096
FIRST = re.compile(r"([ny]),(?:a=[^,]*)?,(n=[^,]*,r=([\x21-\x2b\x2d-\x7e]{1,200}))")
FINAL = re.compile(r"(c=([A-Za-z0-9+/=]+),r=([\x21-\x2b\x2d-\x7e]+)),p=([A-Za-z0-9+/=]+)")


class ScramError(Exception):
    """The error for a message that is not SCRAM's, or a proof of no known token."""


@dataclass(frozen=True)
class Verifiers:
    """Tokens, prepared for proofs. **Cost** some milliseconds a token, once."""

    tokens: tuple[bytes, ...] = field(repr=False)
    salt: bytes = field(default_factory=lambda: os.urandom(16))

    @cached_property
    def salted(self) -> Sequence[bytes]:
        """Return the tokens, salted and hashed."""
        return [hashlib.pbkdf2_hmac("sha256", token, self.salt, ITERATIONS) for token in self.tokens]


class Exchange:
    """The service's side of one exchange: `first`, then `final`."""

    def __init__(self, verifiers: Verifiers) -> None:
        """Create an exchange, which begins with the client's first message."""
        self._verifiers = verifiers
        self._binding = self._messages = self._nonce = ""

    def first(self, data: bytes) -> bytes:
        """Return the server's response to the client's first message."""
        found = FIRST.fullmatch(_ascii(data))
        if found is None:
            raise ScramError("not the first message of SCRAM-SHA-256, or one with channel binding")
        self._binding = found[0][: -len(found[2])]
        self._nonce = found[3] + base64.b64encode(token_bytes(18)).decode()
        answer = f"r={self._nonce},s={base64.b64encode(self._verifiers.salt).decode()},i={ITERATIONS}"
        self._messages = f"{found[2]},{answer}"
        return answer.encode()

    def final(self, data: bytes) -> tuple[bytes, bytes]:
        """Return the token that the client has proved, and the server's own proof.

        **Errors** `ScramError` for a proof of no known token.
        """
        found = FINAL.fullmatch(_ascii(data))
        if found is None or found[3] != self._nonce or _base64(found[2]) != self._binding.encode():
            raise ScramError("not the last message of this exchange")
        signed, proof = f"{self._messages},{found[1]}".encode(), _base64(found[4])
        matched: tuple[bytes, bytes] | None = None
        for token, salted in zip(self._verifiers.tokens, self._verifiers.salted, strict=True):
            stored = hashlib.sha256(_hmac(salted, b"Client Key")).digest()
            signature = _hmac(stored, signed)
            key = bytes(a ^ b for a, b in zip(proof, signature, strict=False))
            if len(proof) == len(signature) and hmac.compare_digest(hashlib.sha256(key).digest(), stored):
                matched = token, salted
        if matched is None:
            raise ScramError("no such token")
        return matched[0], b"v=" + base64.b64encode(_hmac(_hmac(matched[1], b"Server Key"), signed))


def _hmac(key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, "sha256")


def _ascii(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise ScramError("the message is not UTF-8") from None


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ScramError("the message is not base64") from None
