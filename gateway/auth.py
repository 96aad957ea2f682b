"""Who sends a request: API keys, and the tenants they belong to."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Iterable
from hashlib import sha256
from typing import Literal, NamedTuple

from gateway.config.model import ApiKey, Tenant
from gateway.errors import Cause, GatewayError

KEY_PREFIX = "hr_"
_KEY_BYTES = 32
_CHALLENGE = (("www-authenticate", "Bearer"),)


class NewKey(NamedTuple):
    """A key as it is shown once (`text`), and as the configuration keeps it (`sha256`, hex)."""

    text: str
    sha256: str


def generate_key() -> NewKey:
    """A key of 256 random bits."""
    text = KEY_PREFIX + secrets.token_urlsafe(_KEY_BYTES)
    return NewKey(text, sha256(text.encode()).hexdigest())


class Identity:
    """A tenant and the key it came with. Immutable; shared by all exchanges of that key."""

    __slots__ = ("_all_models", "_models", "_prefixes", "grants", "key_id", "name", "tenant")

    def __init__(self, tenant: Tenant, key_id: str) -> None:
        self.tenant = tenant
        self.name = tenant.name
        self.key_id = key_id
        self.grants = tenant.grants
        self._all_models = "*" in tenant.models
        self._models = frozenset(model for model in tenant.models if not model.endswith("*"))
        self._prefixes = tuple(model[:-1] for model in tenant.models if model.endswith("*"))

    def may_use(self, model: str) -> bool:
        """Whether the tenant's list has this model name, or a wildcard that covers it."""
        return self._all_models or model in self._models or model.startswith(self._prefixes)

    def require_model(self, model: str, resolved: str) -> None:
        """Raise FORBIDDEN unless the tenant may use the name it sent, or the model that name stands for."""
        if not self.may_use(model) and not self.may_use(resolved):
            raise GatewayError(Cause.FORBIDDEN, f"This API key may not use the model `{model[:128]}`.", param="model")


class Authenticator:
    """Finds the identity behind a request's key. Immutable: a reload builds a new one, which revokes old keys."""

    __slots__ = ("_by_digest", "_open")

    def __init__(self, mode: Literal["keys", "open"], tenants: Iterable[Tenant]) -> None:
        """In mode `open` a request without a known key belongs to the anonymous tenant.

        Raises ValueError when two keys are the same, since one of them would then hide the other.
        """
        self._open = Identity(Tenant(name="anonymous"), "") if mode == "open" else None
        self._by_digest: dict[bytes, tuple[bytes, Identity]] = {}
        for tenant in tenants:
            for key in tenant.keys:
                self._add(tenant, key)

    def _add(self, tenant: Tenant, key: ApiKey) -> None:
        digest = bytes.fromhex(key.sha256)
        if digest in self._by_digest:
            raise ValueError(f"key {key.id!r} of tenant {tenant.name!r} is configured twice")
        self._by_digest[digest] = (digest, Identity(tenant, key.id))

    def identify(self, authorization: str | None, x_api_key: str | None) -> Identity:
        """The identity of a request with these headers; the Bearer key is tried first.

        Raises GatewayError UNAUTHENTICATED. The table is indexed by the digest of what was presented, so the
        time a lookup takes tells nothing about a key; the comparison after it takes the same time always.
        """
        bearer = _bearer(authorization) if authorization else None
        for key in (bearer, x_api_key):
            if not key:
                continue
            digest = sha256(key.encode("utf-8", "surrogateescape")).digest()
            found = self._by_digest.get(digest)
            if found is not None and hmac.compare_digest(found[0], digest):
                return found[1]
        if self._open is not None:
            return self._open
        raise GatewayError(Cause.UNAUTHENTICATED, self._refusal(bool(bearer or x_api_key)), headers=_CHALLENGE)

    def _refusal(self, presented: bool) -> str:
        if not self._by_digest:
            return "No API key is configured on this gateway, so every request is refused."
        if presented:
            return "The API key is not valid."
        return "No API key was sent. Use `Authorization: Bearer KEY` or `x-api-key: KEY`."


def _bearer(authorization: str) -> str | None:
    if authorization.startswith("Bearer "):
        return authorization[7:].strip()
    scheme, _, key = authorization.partition(" ")
    return key.strip() if scheme.lower() == "bearer" else None
