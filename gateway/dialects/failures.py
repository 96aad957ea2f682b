"""Failures that a codec finds in an answer that came with status 200."""

from __future__ import annotations

from backends.contracts import EngineFailure, Fault


def truncated() -> EngineFailure:
    """The answer ended without a finish reason."""
    return EngineFailure(Fault.TRUNCATED, "the engine's answer ended before it was complete")


def malformed_call() -> EngineFailure:
    """A strict tool was called with arguments that are no JSON object."""
    return EngineFailure(Fault.ANSWER, "the model called a strict tool with arguments that are no JSON object")


def foreign() -> EngineFailure:
    """Bytes that are not of the engine's dialect."""
    return EngineFailure(Fault.PROTOCOL, "the engine sent a frame that is not of its dialect")


def aborted() -> EngineFailure:
    """The engine gave up (finish reason `abort`)."""
    return EngineFailure(Fault.ENGINE, "the engine aborted the answer")
