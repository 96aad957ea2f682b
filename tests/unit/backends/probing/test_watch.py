import asyncio
from dataclasses import replace

import pytest

from backends.contracts import ReplicaState
from backends.engines import builtin
from backends.fleet import Fleet, PoolSpec
from backends.probing import Budget, Target
from backends.probing.schedule import Schedule
from backends.probing.watch import ContractWatcher, Watched
from tests.unit.backends.probing.fake import FakeEngine


class Clock:
    now = 100.0

    def monotonic(self):
        return self.now

    def time(self):
        return 1_800_000_000.0 + self.now


class Scene:
    """Two replicas of one pool and a watcher over them."""

    def __init__(self, declared=None, *, hold=False):
        self.engine = FakeEngine()
        self.clock = Clock()
        self.probed, self.contracts, self.incidents = [], [], []
        kinds = builtin()
        self.fleet = Fleet(kinds, self.clock)
        self.members, _ = self.fleet.apply([PoolSpec("a", "vllm", "glm", ("http://r0", "http://r1"))])
        self.watched = Watched(
            Target("a", kinds["vllm"], "glm", declared or {}, hold_on_contradiction=hold),
            self.client,
            Schedule(interval_s=3600, quiet_exchanges=1, retry_s=60),
            Budget(),
        )
        self.watcher = ContractWatcher(
            {"a": self.watched},
            self.fleet,
            self.clock,
            on_contract=self.contracts.append,
            on_incident=self.incidents.append,
        )

    def client(self, url):
        self.probed.append(url)
        return self.engine

    def budget(self, requests):
        self.watcher.apply({"a": replace(self.watched, budget=Budget(requests))})

    def ready(self):
        for member in self.members:
            self.fleet.set_state(member, ReplicaState.READY)

    async def step(self, seconds=0):
        self.clock.now += seconds
        await self.watcher.step()
        return len(self.probed)


async def test_a_pool_is_probed_once_it_is_ready_and_again_on_schedule():
    scene = Scene()
    assert await scene.step() == 0
    scene.ready()
    assert await scene.step() == 1
    assert await scene.step(3599) == 1
    assert await scene.step(1) == 2
    assert scene.watcher.contracts["a"].terms.max_context == 1_048_576
    assert len(scene.contracts) == 2


async def test_a_new_version_is_probed():
    scene = Scene()
    scene.ready()
    await scene.step()
    for member in scene.members:
        scene.fleet.report(member, member.load, "0.33.0")
    assert await scene.step(60) == 2


async def test_the_quietest_replica_is_probed_and_a_busy_pool_waits():
    scene = Scene()
    scene.ready()
    await scene.step()
    leases = [scene.fleet.lease(scene.members[0], 10, 10, streams=True) for _ in range(4)]
    assert await scene.step(3600) == 1
    leases.pop().release()
    leases.pop().release()
    assert await scene.step() == 2
    assert scene.probed[-1] == "http://r1"


async def test_an_incident_is_told_once():
    scene = Scene({"storage": True})
    scene.ready()
    await scene.step()
    await scene.step(3600)
    assert len(scene.probed) == 2
    assert [entry.term for entry in scene.incidents] == ["storage"]


async def test_a_held_pool_is_told_to_whoever_routes():
    scene = Scene({"storage": True}, hold=True)
    scene.ready()
    await scene.step()
    assert scene.contracts[0].held


@pytest.mark.parametrize("hold", [False, True])
async def test_a_run_that_finds_less_takes_nothing_back(hold):
    scene = Scene({"storage": True}, hold=hold)
    scene.ready()
    await scene.step()
    first = scene.watcher.contracts["a"]
    assert first.terms.efforts
    scene.budget(3)
    await scene.step(3600)
    second = scene.watcher.contracts["a"]
    assert second.terms == first.terms
    assert second.held is first.held is hold
    assert [entry.term for entry in scene.incidents] == ["storage"]


async def test_nothing_is_kept_of_another_version():
    scene = Scene()
    scene.ready()
    await scene.step()
    for member in scene.members:
        scene.fleet.report(member, member.load, "0.33.0")
    scene.budget(3)
    await scene.step(60)
    assert scene.watcher.contracts["a"].terms.efforts is None


async def test_it_runs_until_cancelled():
    scene = Scene()
    scene.ready()
    task = asyncio.ensure_future(scene.watcher.run(tick_s=0.001))
    while not scene.contracts:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
