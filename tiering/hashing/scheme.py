"""What a hashing scheme is: tokens in, the digests of all full blocks out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:  # the words are needed where nothing is hashed
    import numpy as np
    import numpy.typing as npt

Tokens: TypeAlias = "npt.NDArray[np.uint32]"


@dataclass(frozen=True, slots=True)
class Media:
    """An image, audio clip or video in the prompt: its identifier inside the engine, and the tokens it stands for."""

    identifier: str
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Extras:
    """What takes part in the hash beside tokens. The default takes part in nothing."""

    salt: str | None = None
    lora_name: str | None = None
    lora_path: str = ""
    media: tuple[Media, ...] = ()


PLAIN = Extras()


class Scheme(Protocol):
    """Hashes of one engine configuration. `block` is tokens per block."""

    @property
    def block(self) -> int:
        """Tokens per block."""
        ...

    def digests(self, tokens: Tokens, extras: Extras = PLAIN, known: Sequence[bytes] = ()) -> list[bytes]:
        """Digests of all full blocks of `tokens` (n,). `known` are those of its first blocks, not computed again."""
        ...

    def hashes(self, digests: Sequence[bytes]) -> npt.NDArray[np.uint64]:
        """The 64-bit hashes (m,) that events carry for `digests`, as unsigned words."""
        ...
