"""Everyday exchanges without a task: from the bytes of the request to those for the engine in one go, and back.

Most requests hold nothing that needs care, and find a ready
replica with an idle connection. Those are served by the pipeline's own steps, called one after the other. As soon as
one has to wait, or an attempt fails, the exchange gets a task and goes on there as any other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol

import structlog

from backends.client import EngineConnection
from backends.contracts import EngineFailure, Replica
from backends.fleet import Fleet
from gateway.attempt import Attempt, Spawn
from gateway.caller import Caller
from gateway.dialects.direct import read_direct
from gateway.dialects.registry import Dialect
from gateway.errors import Cause, GatewayError
from gateway.exchange import Exchange
from gateway.heads import Head
from gateway.pipeline import Pipeline
from gateway.stream import ClientStream

log = structlog.get_logger("headrace.lane")


class Client(Protocol):
    """The connection that an exchange came in on."""

    transport: asyncio.Transport | None

    def answered(self, *, keep: bool) -> None:
        """The exchange is over. Not `keep`: the connection has to end."""
        ...


class Lane:
    """Begins exchanges of one dialect whose requests `read_direct` understands."""

    __slots__ = ("_dialect", "_fleet", "_pipeline", "_spawn")

    def __init__(self, pipeline: Pipeline, fleet: Fleet, dialect: Dialect, spawn: Spawn) -> None:
        self._pipeline = pipeline
        self._fleet = fleet
        self._dialect = dialect
        self._spawn = spawn

    def caller(self, head: Head, address: str) -> Caller:
        """What to pass to `begin` for requests that repeat this head."""
        return Caller(head.headers, head.path, address, self._pipeline.runtime)

    def begin(self, caller: Caller, body: bytes, client: Client) -> Running | None:
        """Serve a request, or return None: then nothing has happened, and it has to go the ordinary way."""
        pipeline = self._pipeline
        runtime = pipeline.runtime
        if caller.in_session or len(body) > runtime.config.listen.body_limit_bytes:
            return None
        asked = read_direct(body)
        if asked is None:
            return None
        if caller.runtime is not runtime:
            caller.follow(runtime)
        x = pipeline.open(caller, self._dialect, ClientStream(client.transport, close=pipeline.draining))
        running = Running(pipeline, self._spawn, x, client)
        try:
            pipeline.admit(x, caller)
            pipeline.understand(x, asked)
            self._dispatch(x, running)
        except GatewayError as error:
            running.refuse(error)
        except Exception:
            log.exception("exchange failed", request_id=x.record.request_id)
            running.refuse(GatewayError(Cause.INTERNAL, "internal error"))
        return running

    def _dispatch(self, x: Exchange, running: Running) -> None:
        """Begin the first attempt, or leave that to a task when something has to be waited for."""
        pipeline = self._pipeline
        if not pipeline.placement.everyday(x):
            running.go_on(pipeline.dispatch(x))
            return
        replica = pipeline.placement.choose(x)
        member = self._fleet.member(replica.id) if replica is not None else None
        connection = member.connections.take() if member is not None else None
        if replica is None or member is None or connection is None:
            running.go_on(pipeline.attempts(x, replica))
            return
        running.start(replica, pipeline.prepare(x, replica, member, pipeline.engine_request(x, replica)), connection)


class Running:
    """One exchange on its way: an attempt, or a task."""

    __slots__ = ("_attempt", "_client", "_pipeline", "_replica", "_spawn", "_task", "_x")

    _replica: Replica

    def __init__(self, pipeline: Pipeline, spawn: Spawn, x: Exchange, client: Client) -> None:
        self._pipeline = pipeline
        self._spawn = spawn
        self._x = x
        self._client = client
        self._attempt: Attempt | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self, replica: Replica, attempt: Attempt, connection: EngineConnection) -> None:
        """Make the first attempt."""
        self._replica = replica
        self._attempt = attempt
        attempt.start(connection, self._settled, reused=True)

    def go_on(self, serving: Coroutine[Any, Any, None]) -> None:
        """Do the rest in a task."""
        self._task = self._spawn(self._through(serving), "exchange")

    def refuse(self, error: GatewayError) -> None:
        """Tell the client what is wrong; that is the end."""
        self._drop()
        self._pipeline.refuse(self._x, error)
        self._end()

    def cancel(self) -> None:
        """The client has left."""
        if self._task is not None:
            self._task.cancel()
            return
        self._drop()
        self._pipeline.abandon(self._x)

    def _settled(self, failure: EngineFailure | None) -> None:
        attempt, self._attempt = self._attempt, None
        if attempt is None:
            return
        self._pipeline.release(attempt)
        self._pipeline.learn(self._x, attempt, failure)
        if failure is None:
            self._end()
        else:
            self.go_on(self._pipeline.attempts(self._x, self._replica, failure))

    def _drop(self) -> None:
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            attempt.leave()
            self._pipeline.release(attempt)

    async def _through(self, serving: Coroutine[Any, Any, None]) -> None:
        await self._pipeline.through(self._x, serving)
        self._client.answered(keep=self._x.stream.lasting)

    def _end(self) -> None:
        self._pipeline.close(self._x)
        self._client.answered(keep=self._x.stream.lasting)
