"""The configuration as it may be shown."""

from __future__ import annotations

from typing import Any

from gateway.config.model import Config
from gateway.config.references import MASK, mask_url


def redacted(config: Config) -> dict[str, Any]:
    """Plain JSON data: secrets and key hashes masked by type, the user part of URLs masked, sets sorted."""
    plain: dict[str, Any] = _clean(config.model_dump())
    return plain


def _clean(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: MASK if key == "sha256" else _clean(inner) for key, inner in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(value)
    if isinstance(value, list | tuple):
        return [_clean(inner) for inner in value]
    if isinstance(value, str):
        return mask_url(value)
    return value if value is None or isinstance(value, bool | int | float) else MASK
