"""Our priority in an engine's own order."""

from __future__ import annotations

from typing import Final

# Far more than anybody needs, and safe in every engine's integer.
LIMIT: Final = 1000


def engine_priority(priority: int, *, lower_first: bool) -> int:
    """Ours (higher is sooner, 0 is normal) as the engine's: vLLM takes lower first, SGLang higher first."""
    bounded = max(-LIMIT, min(LIMIT, priority))
    return -bounded if lower_first else bounded
