"""The prober over sockets."""

import asyncio

import aiohttp
import pytest

from backends.contracts import ReplicaState
from backends.counters import Counters
from backends.engines import builtin
from backends.fleet import Fleet, Member, PoolSpec
from backends.health import HealthProber
from backends.supervisor import Supervisor
from tests.support.app import config_of, gateway, pool_of
from tests.support.clock import ManualClock
from tests.support.raw_server import raw_server, read_request

MODELS = b'{"object":"list","data":[{"id":"other"},{"id":"glm"}]}'
METRICS = b"vllm:num_requests_running{} 3.0\n" + b"# filler\n" * 2000 + b"vllm:num_requests_waiting{} 2.0\n"


async def in_pieces(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers whose bodies come in two pieces, a moment apart."""
    while True:
        path = (await read_request(reader)).split(b" ", 2)[1]
        body = {b"/v1/models": MODELS, b"/metrics": METRICS}.get(path, b"{}")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body[:1])
        await writer.drain()
        await asyncio.sleep(0.02)
        writer.write(body[1:])


async def test_bodies_that_come_in_pieces_are_read_whole() -> None:
    supervisor = Supervisor()
    async with raw_server(in_pieces) as url, aiohttp.ClientSession() as session:
        fleet = Fleet(builtin(), ManualClock())
        (member,), _ = fleet.apply([PoolSpec("a", "vllm", "glm", (url,))])
        prober = HealthProber(fleet, session, supervisor, list[str]().append)
        assert await prober.probe(member, models=True) == (ReplicaState.READY, "")
        assert (member.load.running, member.load.waiting) == (3, 2)
        fleet.apply([])


class Reader:
    """Wants every look."""

    def __init__(self) -> None:
        self.asked: list[bool] = []
        self.looks: list[Counters] = []

    def wants(self, member: Member, *, asking: bool) -> bool:
        self.asked.append(asking)
        return True

    def took(self, member: Member, counters: Counters) -> None:
        self.looks.append(counters)


@pytest.mark.parametrize("told", [True, False])
async def test_counters_come_with_the_load_or_are_asked_for(told: bool) -> None:
    paths: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            path = (await read_request(reader)).split(b" ", 2)[1].decode()
            paths.append(path)
            status = 200 if told or path != "/metrics" else 404
            body = b"vllm:generation_tokens_total 7\nsglang:generation_tokens_total 9\n"
            writer.write(b"HTTP/1.1 %d X\r\ncontent-length: %d\r\n\r\n" % (status, len(body)) + body)

    async with raw_server(answer) as url, aiohttp.ClientSession() as session:
        fleet, reader = Fleet(builtin(), ManualClock()), Reader()
        members, _ = fleet.apply([PoolSpec(kind, kind, "glm", (url,)) for kind in ("vllm", "sglang")])
        prober = HealthProber(fleet, session, Supervisor(), list[str]().append, counters=reader)
        for member in members:
            assert (await prober.probe(member, models=False))[0] is ReplicaState.READY
        assert paths == ["/health", "/metrics", "/ready", "/v1/loads", "/metrics"]
        assert reader.asked == ([False, True] if told else [True])
        assert [look.generated for look in reader.looks] == ([7.0, 9.0] if told else [])
        fleet.apply([])


async def test_only_a_refused_connection_says_that_a_process_has_ended() -> None:
    said = asyncio.Event()

    async def sick(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        if said.is_set():  # the second time nothing comes
            await asyncio.sleep(5.0)
        said.set()
        writer.write(b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        writer.close()

    emptied: list[str] = []
    async with aiohttp.ClientSession() as session:
        fleet = Fleet(builtin(), ManualClock())
        prober = HealthProber(fleet, session, Supervisor(), emptied.append)
        async with raw_server(sick) as url:
            (member,), _ = fleet.apply([PoolSpec("a", "vllm", "glm", (url,), probe_timeout_s=0.1)])
            for _ in range(2):
                assert (await prober.probe(member, models=True))[0] is ReplicaState.DOWN
            assert emptied == []
        assert (await prober.probe(member, models=True))[0] is ReplicaState.DOWN
        assert emptied == ["a/0"]
        prober.watch(*fleet.apply([]))
        assert emptied == ["a/0", "a/0"]


async def test_ready_once_every_replica_was_looked_at() -> None:
    looked = asyncio.Event()

    async def late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await looked.wait()
        await in_pieces(reader, writer)

    async with raw_server(in_pieces) as quick, raw_server(late) as slow:
        config = config_of([pool_of(quick, name="a"), pool_of(slow, name="b")])
        async with gateway(config, ready=False) as running:
            first, second = running.app.fleet
            while first.state is not ReplicaState.READY:
                await asyncio.sleep(0.01)
            async with running.client.get(f"{running.url}/readyz") as answer:
                assert answer.status == 503
                assert "looked at" in await answer.text()
            looked.set()
            while second.state is not ReplicaState.READY:
                await asyncio.sleep(0.01)
            assert running.app.not_ready() == ""
            looked.clear()
            await running.app.apply(config_of([pool_of(quick, name="a"), pool_of(slow, slow, name="c")]), ())
            assert running.app.not_ready() == ""  # one that joins later does not take the gateway out
            looked.set()
