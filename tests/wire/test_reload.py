"""Reloads against a real file, looks at it and real signals."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import structlog

from gateway.config.diff import Change
from gateway.config.known import Known
from gateway.config.loader import Loaded, load
from gateway.config.model import Config
from gateway.config.reload import Reloader

TEXT = """
auth: {{mode: open}}
pools:
  - {{name: a, engine: vllm, model: m, replicas: ["http://127.0.0.1:9101"], weight: {weight}{more}}}
models: [{{name: m, pools: [a]}}]
"""


def text(weight: float, more: str = "") -> str:
    return TEXT.format(weight=weight, more=more)


class Gateway:
    """Stands where the gateway applies a configuration, and can fail to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.applied: list[tuple[Config, list[str]]] = []
        self.broken = False
        self.reloader = Reloader(self._load(), self._load, self._apply)

    def _load(self) -> Loaded:
        return load(self.path, Known(engines=("vllm",)), environ={})

    async def _apply(self, new: Config, changes: tuple[Change, ...]) -> None:
        if self.broken:
            raise RuntimeError("no")
        self.applied.append((new, [str(change) for change in changes]))

    @property
    def weight(self) -> float:
        return self.reloader.config.pools[0].weight

    async def until(self, weight: float) -> None:
        while self.weight != weight:
            await asyncio.sleep(0.01)


@pytest.fixture
def gateway(tmp_path: Path) -> Gateway:
    path = tmp_path / "headrace.yaml"
    path.write_text(text(1))
    return Gateway(path)


@pytest.fixture
async def running(gateway: Gateway) -> AsyncIterator[Gateway]:
    task = asyncio.create_task(gateway.reloader.run())
    yield gateway
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_changed_tree_is_applied_with_what_changed(gateway: Gateway) -> None:
    gateway.path.write_text(text(2))
    assert await gateway.reloader.reload()
    assert [lines for _, lines in gateway.applied] == [["pools[a].weight: 1.0 -> 2.0"]]
    assert gateway.reloader.config is gateway.applied[0][0]


async def test_an_equal_tree_is_not_applied(gateway: Gateway) -> None:
    gateway.path.write_text(text(1) + "# a comment\n")
    assert await gateway.reloader.reload()
    assert gateway.applied == []


async def test_a_faulty_tree_is_refused_with_every_reason(gateway: Gateway) -> None:
    old = gateway.reloader.config
    gateway.path.write_text(text(-1, ", enginee: x"))
    with structlog.testing.capture_logs() as logs:
        assert not await gateway.reloader.reload()
    assert gateway.reloader.config is old
    assert gateway.applied == []
    assert [entry["problem"].partition(": ")[2].split(":")[0] for entry in logs] == [
        "pools[0].weight",
        "pools[0].enginee",
    ]


async def test_a_tree_that_cannot_be_applied_is_refused(gateway: Gateway) -> None:
    gateway.broken = True
    gateway.path.write_text(text(2))
    with structlog.testing.capture_logs() as logs:
        assert not await gateway.reloader.reload()
    assert gateway.weight == 1
    assert [(entry["event"], entry["log_level"]) for entry in logs] == [("config refused", "error")]
    gateway.broken = False
    assert await gateway.reloader.reload()
    assert gateway.weight == 2


async def test_a_missing_file_keeps_the_old_tree(gateway: Gateway) -> None:
    gateway.path.unlink()
    assert not await gateway.reloader.reload()
    assert gateway.weight == 1


async def test_a_change_of_the_file_is_noticed(running: Gateway) -> None:
    running.path.write_text(text(2))
    await running.until(2)


async def test_a_file_that_is_still_being_written_is_not_read(running: Gateway) -> None:
    with structlog.testing.capture_logs() as logs:
        for size in range(12):
            running.path.write_text("pools: [" + " " * size)
            await asyncio.sleep(0.1)
        running.path.write_text(text(2))
        await running.until(2)
    assert [entry["event"] for entry in logs] == ["config reloaded"]


async def test_a_replaced_file_is_noticed(running: Gateway) -> None:
    for weight in (2, 3):
        new = running.path.with_suffix(".new")
        new.write_text(text(weight))
        new.replace(running.path)
        await running.until(weight)


async def test_a_swapped_folder_behind_a_link_is_noticed(tmp_path: Path) -> None:
    """How Kubernetes updates a ConfigMap: `..data` points to another folder."""
    for weight in (1, 2):
        (tmp_path / f"v{weight}").mkdir()
        (tmp_path / f"v{weight}" / "headrace.yaml").write_text(text(weight))
    (tmp_path / "..data").symlink_to("v1")
    (tmp_path / "headrace.yaml").symlink_to("..data/headrace.yaml")
    gateway = Gateway(tmp_path / "headrace.yaml")
    task = asyncio.create_task(gateway.reloader.run())
    (tmp_path / "..tmp").symlink_to("v2")
    (tmp_path / "..tmp").replace(tmp_path / "..data")
    await gateway.until(2)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_rotated_secret_is_noticed_in_its_own_folder(running: Gateway, tmp_path: Path) -> None:
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    (secrets / "key").write_text("one")
    running.path.write_text(text(2, ", api_key: 'file:secrets/key'"))
    await running.until(2)
    (secrets / "key").write_text("two, longer")
    while running.reloader.config.pools[0].api_key.get_secret_value() != "two, longer":
        await asyncio.sleep(0.01)


async def test_a_secret_that_comes_late_mends_a_refused_tree(running: Gateway, tmp_path: Path) -> None:
    running.path.write_text(text(2, ", api_key: 'file:key'"))
    while not (tmp_path / "key").exists():
        await asyncio.sleep(1.5)  # time enough to be refused
        assert running.weight == 1
        (tmp_path / "key").write_text("here")
    await running.until(2)


async def test_sighup_reloads(gateway: Gateway) -> None:
    task = asyncio.create_task(gateway.reloader.run(watch=False))
    await asyncio.sleep(0)
    gateway.path.write_text(text(2))
    await asyncio.sleep(0.1)
    assert gateway.weight == 1
    os.kill(os.getpid(), signal.SIGHUP)
    await gateway.until(2)
    gateway.path.write_text("a: [")
    os.kill(os.getpid(), signal.SIGHUP)
    await asyncio.sleep(0.1)
    assert gateway.weight == 2
    assert not task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
