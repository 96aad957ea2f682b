"""One flat buffer, cut into the arrays of the index; private, or a mapped file that other processes read."""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

U32 = npt.NDArray[np.uint32]
U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

CHUNK = 4096  # blocks handled by one round of the writer
NAME_BYTES = 128
_HEADER_WORDS = 16
_ALIGN = 64

# Words of the header.
SEQUENCE = 0  # odd while the writer changes the arrays
HEAD = 1  # blocks ever written to the log
TAIL = 2  # blocks of the log already cleaned away
NAMES_VERSION = 3  # grows when a holder comes, goes or joins a shared one
BLOCKS, SETS, HOLDERS = 4, 5, 6  # sizes, so that a reader can attach knowing only the file
SAMPLE = 7  # one block in so many is kept
SHARED = 8  # holders that others read from


@dataclass(frozen=True, slots=True)
class Sizes:
    """Capacities of an index. Memory is about 28 bytes a block, plus 32 bytes x holders / 64 for each set."""

    blocks: int = 1_000_000  # live blocks kept at least; the oldest go when the log, a quarter larger, is full
    sets: int = 16_384  # distinct (holder, tier) sets
    holders: int = 512  # replicas x DP ranks, and shared filesystems; a multiple of 64

    def __post_init__(self) -> None:
        if self.holders % 64 or not 64 <= self.holders <= 4096:
            raise ValueError("holders must be a multiple of 64, at most 4096")
        if not 2 <= self.sets <= 1 << 24:
            raise ValueError("sets must be between 2 and 2^24")
        if not 1 <= self.blocks <= 800_000_000:
            raise ValueError("blocks must be between 1 and 8e8")

    @property
    def log(self) -> int:
        """Slots of the log: a fifth may be dead before the cleaner has to move live blocks often."""
        return self.blocks + max(self.blocks // 4, 2 * CHUNK)

    @property
    def slots(self) -> int:
        """Slots of the hash: at most two fifths full, dead blocks included."""
        return self.log * 5 // 2

    @property
    def words(self) -> int:
        """64-bit words of one bit per holder."""
        return self.holders // 64


class Memory:
    """The arrays of one index. All are views into one buffer."""

    __slots__ = ("_mapped", "header", "keys", "masks", "members", "names", "sizes", "slots", "values")

    header: U64
    slots: U32  # hash -> position in the log + 2; 0 empty, 1 deleted
    keys: U64  # the log: block keys in the order they were stored
    values: U32  # the log: set id, top bit: stored again since
    masks: U64  # (sets, tiers, words): bit h = holder h has the block in that tier
    members: U64  # (holders, words): who reads the files of shared holder h
    names: npt.NDArray[np.bytes_]

    def __init__(self, sizes: Sizes, mapped: mmap.mmap | None = None) -> None:
        self.sizes = sizes
        self._mapped = mapped
        shapes = _shapes(sizes)
        buffer = mapped if mapped is not None else np.zeros(_total(shapes), np.uint8)
        offset = 0
        for name, (dtype, shape) in shapes.items():
            view = np.ndarray(shape, dtype, buffer=buffer, offset=offset)
            setattr(self, name, view)
            offset += _padded(view.nbytes)

    @classmethod
    def create(cls, sizes: Sizes, path: Path | None = None) -> Memory:
        """New zeroed memory; with a `path`, best in /dev/shm, other processes can attach to it.

        Raises FileExistsError: a file that is there may have readers.
        """
        memory = cls(sizes, _map(path, _total(_shapes(sizes))) if path else None)
        # Touch every page now: resident memory must not creep up while traffic flows.
        for array in (memory.slots, memory.keys, memory.values):
            array.fill(0)
        memory.header[BLOCKS], memory.header[SETS], memory.header[HOLDERS] = sizes.blocks, sizes.sets, sizes.holders
        return memory

    @classmethod
    def attach(cls, path: Path) -> Memory:
        """Memory another process created at `path`, to read. Raises FileNotFoundError when there is none."""
        with path.open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        header = np.frombuffer(mapped, np.uint64, _HEADER_WORDS)
        sizes = Sizes(int(header[BLOCKS]), int(header[SETS]), int(header[HOLDERS]))
        del header
        return cls(sizes, mapped)

    def close(self) -> None:
        """Drop the arrays and the mapping; the object is unusable afterwards. The file is the creator's to remove."""
        for name in _shapes(self.sizes):
            delattr(self, name)
        if self._mapped is not None:
            self._mapped.close()

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays together."""
        return _total(_shapes(self.sizes))


def _map(path: Path, size: int) -> mmap.mmap:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.ftruncate(fd, size)
        return mmap.mmap(fd, size)
    finally:
        os.close(fd)


def _shapes(sizes: Sizes) -> dict[str, tuple[npt.DTypeLike, tuple[int, ...]]]:
    return {
        "header": (np.uint64, (_HEADER_WORDS,)),
        "slots": (np.uint32, (sizes.slots,)),
        "keys": (np.uint64, (sizes.log,)),
        "values": (np.uint32, (sizes.log,)),
        "masks": (np.uint64, (sizes.sets, 4, sizes.words)),
        "members": (np.uint64, (sizes.holders, sizes.words)),
        "names": (np.dtype(f"S{NAME_BYTES}"), (sizes.holders,)),
    }


def _padded(nbytes: int) -> int:
    return (nbytes + _ALIGN - 1) // _ALIGN * _ALIGN


def _total(shapes: dict[str, tuple[npt.DTypeLike, tuple[int, ...]]]) -> int:
    return sum(_padded(int(np.prod(shape)) * np.dtype(dtype).itemsize) for dtype, shape in shapes.values())
