"""A user's two keys, and the proofs made with them: of RocketMQ's protocols and of ours.

A proof is a hash with the secret as its key. So a server that checks one has to know the secret itself.
Source: RocketMQ ``AclSigner``, ``AclUtils``; RocketMQ 5's clients for the header of gRPC.
"""

import base64
import hmac
import os
import re
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from dejamq_proto.codes import ConfigError

ACCESS_KEY, SIGNATURE = "AccessKey", "Signature"
"""Fields of a remoting request."""
HEADER, DATE_TIME = "authorization", "x-mq-date-time"
"""Headers of a call."""
OURS, V2 = "DEJAMQ-HMAC-SHA256", "MQv2-HMAC-SHA1"
KEY_NAMES = re.compile(r"[\w.@-]{1,64}", re.ASCII)


class Signable(Protocol):
    """A remoting request."""

    ext: dict[str, str]
    body: bytes


class Account(NamedTuple):
    """Who a client is. Source: RocketMQ ``SessionCredentials``."""

    access_key: str
    secret_key: str

    def __repr__(self) -> str:
        """Without the secret: this may come into a log."""
        return f"Account({self.access_key!r}, ***)"

    def sign(self, command: Signable) -> None:
        """Add who asks, and the proof, to a remoting request. Source: RocketMQ ``AclClientRPCHook``."""
        command.ext = command.ext | {ACCESS_KEY: self.access_key}
        command.ext[SIGNATURE] = fields_proof(self.secret_key, command.ext, command.body)

    def authorization(self, method: str, now_ms: int) -> str:
        """The header of one call of dejamq.v1, whose full name is ``/service/method``."""
        proof = call_proof(self.secret_key, method, str(now_ms))
        return f"{OURS} Credential={self.access_key}, Date={now_ms}, Signature={proof}"

    def basic(self) -> str:
        """The header ``Authorization`` of HTTP. Source: RFC 7617."""
        return "Basic " + base64.b64encode(f"{self.access_key}:{self.secret_key}".encode()).decode()


def account_of(access_key: str | None, secret_key: str | None) -> Account | None:
    """Both keys, or None for none. Raises ConfigError for one without the other."""
    if bool(access_key) != bool(secret_key):
        missing = "secret_key" if access_key else "access_key"
        raise ConfigError(f"{missing} is missing: a client gives both keys of its user, or none")
    return Account(access_key, secret_key) if access_key and secret_key else None


def account_of_environment(env: Mapping[str, str] = os.environ) -> Account | None:
    """As DEJAMQ_ACCESS_KEY and DEJAMQ_SECRET_KEY say. Raises ConfigError for one without the other."""
    return account_of(env.get("DEJAMQ_ACCESS_KEY"), env.get("DEJAMQ_SECRET_KEY"))


def fields_proof(secret: str, ext: Mapping[str, str], body: bytes) -> str:
    """Of a remoting request: all values in the order of their names but the proof itself, then the body."""
    content = "".join(ext[name] for name in sorted(ext) if name != SIGNATURE).encode("utf-8", "replace") + body
    return base64.b64encode(hmac.digest(secret.encode(), content, "sha1")).decode()


def call_proof(secret: str, method: str, date: str) -> str:
    """Of a call of dejamq.v1: its name and when it was made."""
    return hmac.digest(secret.encode(), f"{method}\n{date}".encode(), "sha256").hex()


def v2_proof(secret: str, date_time: str) -> str:
    """Of a call of RocketMQ 5's clients, who sign nothing but the time."""
    return hmac.digest(secret.encode(), date_time.encode(), "sha1").hex()


def now_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class SignedChannel:
    """A gRPC channel of which each call carries the header of an account. The stubs of our services take it for one.

    Each call is signed when it is made, a stream when it is opened.
    """

    def __init__(
        self, channel: Any, account: "Account | Callable[[], Account | None]", clock_ms: Callable[[], int] = now_ms
    ) -> None:
        """An ``account`` that may change is asked for at each call; without one the call is not signed."""
        self._channel, self._clock_ms = channel, clock_ms
        self._account: Callable[[], Account | None] = account if callable(account) else lambda: account

    def unary_unary(self, method: str, *given: Any, **named: Any) -> Any:
        return self._signing(method, self._channel.unary_unary(method, *given, **named))

    def unary_stream(self, method: str, *given: Any, **named: Any) -> Any:
        return self._signing(method, self._channel.unary_stream(method, *given, **named))

    def stream_stream(self, method: str, *given: Any, **named: Any) -> Any:
        return self._signing(method, self._channel.stream_stream(method, *given, **named))

    async def close(self, grace: float | None = None) -> None:
        await self._channel.close(grace)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._channel, name)

    def _signing(self, method: str, made: Any) -> Any:
        def call(*given: Any, metadata: Any = (), **named: Any) -> Any:
            account = self._account()
            if account is not None:
                header = (HEADER, account.authorization(method, self._clock_ms()))
                metadata = (*(metadata or ()), header)
            return made(*given, metadata=metadata, **named)

        return call
