"""Reasoning that leaves the gateway so that the client can bring it back: sealed, tenant-bound, rotatable.

Form: `gw1.` key id `.` base64url(nonce | ciphertext). Plain text: zlib(JSON [family, reasoning]). The tenant is
authenticated but not contained. Whatever cannot be opened is foreign and dropped, never an error.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_PREFIX = "gw1."
_NONCE = 12
MAX_BLOB = 256 * 1024  # characters; longer reasoning is not sealed
MAX_TEXT = 4 * 1024 * 1024  # bytes after inflation


@dataclass(frozen=True, slots=True)
class Keys:
    """Sealing keys by id. `current` seals; all open."""

    current: str
    by_id: Mapping[str, bytes]  # 32 bytes each

    @classmethod
    def of_secret(cls, *secrets: str) -> Keys:
        """Derive keys from secrets of any length, the current one first; the id is a fingerprint."""
        salt = b"headrace reasoning seal"
        keys = [hashlib.scrypt(secret.encode(), salt=salt, n=2**12, r=8, p=1, dklen=32) for secret in secrets]
        by_id = {hashlib.sha256(key).hexdigest()[:8]: key for key in keys}
        return cls(next(iter(by_id)), by_id)


class _Ciphers:
    """A cipher per key, made when first wanted: the library is large, and many gateways never seal anything."""

    __slots__ = ("_keys", "_made")

    def __init__(self, keys: Mapping[str, bytes]) -> None:
        self._keys = keys
        self._made: dict[str, AESGCM] = {}

    def get(self, key_id: str) -> AESGCM | None:
        """The cipher of a key; None when there is no such key."""
        if key_id not in self._made and key_id in self._keys:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM

            self._made[key_id] = AESGCM(self._keys[key_id])
        return self._made.get(key_id)


class Sealer:
    """Seals for all tenants, made once from the keys."""

    __slots__ = ("_ciphers", "_current", "_nonce")

    def __init__(self, keys: Keys, nonce: Callable[[int], bytes]) -> None:
        """`nonce(n)` gives n unpredictable bytes: `secrets.token_bytes` outside tests."""
        self._ciphers = _Ciphers(keys.by_id)
        self._current = keys.current
        self._nonce = nonce

    def of(self, tenant: str) -> Seal:
        """The seal of one tenant; cheap."""
        return Seal(self._ciphers, self._current, self._nonce, tenant.encode())


class Seal:
    """Seals and opens the reasoning of one tenant."""

    __slots__ = ("_ciphers", "_current", "_nonce", "_tenant")

    def __init__(self, ciphers: _Ciphers, current: str, nonce: Callable[[int], bytes], tenant: bytes) -> None:
        self._ciphers = ciphers
        self._current = current
        self._nonce = nonce
        self._tenant = tenant

    def close(self, reasoning: str, family: str) -> str:
        """Seal `reasoning` of an answer of a model `family`; "" when it would be longer than `MAX_BLOB`."""
        plain = zlib.compress(json.dumps([family, reasoning]).encode(), 1)
        cipher = self._ciphers.get(self._current)
        if cipher is None:
            raise KeyError(self._current)
        nonce = self._nonce(_NONCE)
        sealed = nonce + cipher.encrypt(nonce, plain, self._tenant)
        blob = f"{_PREFIX}{self._current}.{base64.urlsafe_b64encode(sealed).decode().rstrip('=')}"
        return blob if len(blob) <= MAX_BLOB else ""

    def open(self, blob: str) -> tuple[str, str] | None:
        """(family, reasoning) in `blob`; None when it is foreign, another tenant's, or damaged."""
        if not blob.startswith(_PREFIX) or len(blob) > MAX_BLOB:
            return None
        key_id, _, text = blob.removeprefix(_PREFIX).partition(".")
        cipher = self._ciphers.get(key_id)
        if cipher is None:
            return None
        from cryptography.exceptions import InvalidTag

        try:
            sealed = base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True)
            plain = cipher.decrypt(sealed[:_NONCE], sealed[_NONCE:], self._tenant)
            inflated = zlib.decompressobj().decompress(plain, MAX_TEXT)
            family, reasoning = json.loads(inflated)
        except (InvalidTag, ValueError, binascii.Error, zlib.error):
            return None
        return str(family), str(reasoning)
