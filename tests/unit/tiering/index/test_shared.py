"""Readers in other processes, while the writer writes."""

from __future__ import annotations

import ast
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tiering.events.decode import Removed, Stored
from tiering.index.memory import Memory, Sizes
from tiering.index.prefix import PrefixIndex
from tiering.index.reader import IndexReader

SIZES = Sizes(blocks=5000, sets=64, holders=64)
READER = """
import sys
from pathlib import Path
import numpy as np
from backends.contracts import Replica, ReplicaState
from tiering.chain import Chain
from tiering.index.memory import Memory
from tiering.index.reader import IndexReader

reader = IndexReader(Memory.attach(Path(sys.argv[1])))
keys = np.load(sys.argv[2])
chains = [Chain(row, 1, len(row) + 1) for row in keys]
replicas = [Replica(name, "p", "", row, ReplicaState.READY) for row, name in enumerate("ab")]
seen = set()

def look():
    rows = reader.rows(replicas)
    for number, chain in enumerate(chains):
        found = reader.locate(chain, rows).reach[0].tolist()
        seen.add((number, *found))

look()  # once in peace: a reader that gets no processor time may miss all that follows
print("ready", flush=True)
while reader.names_version < 3:
    look()
print(sorted(seen))
reader.close()
"""


def test_a_reader_sees_all_of_a_batch_or_nothing(tmp_path: Path) -> None:
    path, saved = tmp_path / "index", tmp_path / "keys.npy"
    index = PrefixIndex.create(SIZES, path=path)
    source = np.random.default_rng(1)
    keys = source.integers(0, 1 << 64, (3, 400), dtype=np.uint64)
    np.save(saved, keys)
    lasting, coming, _ = (row.tolist() for row in keys)
    index.apply("a", [Stored(lasting)])
    index.apply("b", [Stored(lasting[:200])])
    command = [sys.executable, "-c", READER, str(path), str(saved)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        churn = random.Random(2)
        passing: list[int] = []
        for number in range(120):
            index.apply("a", [Stored(coming) if number % 2 else Removed(coming)])
            # Enough to have the log cleaned several times, and gone soon: over the cap parts of batches are evicted.
            gone, passing = passing, [churn.getrandbits(64) for _ in range(300)]
            index.apply("b", [Removed(gone), Stored(passing)])
            index.apply("b", [Stored(lasting[:200]), Stored(coming[::3])])
            index.apply("a", [Stored(lasting)])
        index.apply("c", [Stored([1])])  # a third name: the reader's sign to stop
        output = child.stdout.read()
    assert child.returncode == 0
    seen = set(ast.literal_eval(output))
    # 0 stands for "unknown", which a reader may always answer; a part of a batch it never sees.
    assert {item for item in seen if item[0] == 0} <= {(0, 400, 200), (0, 0, 0)}
    assert (0, 400, 200) in seen
    assert {(number, on_a) for number, on_a, _ in seen if number == 1} <= {(1, 0), (1, 400)}
    assert {item for item in seen if item[0] == 2} <= {(2, 0, 0)}
    index.close()


def test_a_reader_learns_of_new_holders(tmp_path: Path) -> None:
    index = PrefixIndex.create(SIZES, path=tmp_path / "index")
    reader = IndexReader(Memory.attach(tmp_path / "index"))
    keys = np.arange(1, 9, dtype=np.uint64)
    assert not reader.holds("a", keys).any()
    index.apply("a", [Stored(keys.tolist())])
    assert reader.names_version == index.names_version == 1
    reader.rows([])
    assert reader.holds("a", keys).all()
    reader.close()
    index.close()


def test_a_file_that_is_there_is_left_alone(tmp_path: Path) -> None:
    PrefixIndex.create(SIZES, path=tmp_path / "index").close()
    with pytest.raises(FileExistsError):
        PrefixIndex.create(SIZES, path=tmp_path / "index")
    with pytest.raises(FileNotFoundError):
        Memory.attach(tmp_path / "other")


@pytest.mark.parametrize("sizes", [{"holders": 100}, {"holders": 8192}, {"sets": 1}, {"blocks": 0}])
def test_sizes_that_cannot_be_are_refused(sizes: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="must be"):
        Sizes(**sizes)


def test_a_sample_is_a_power_of_two() -> None:
    with pytest.raises(ValueError, match="power of two"):
        PrefixIndex.create(SIZES, sample=3)
