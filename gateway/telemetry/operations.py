"""The operational log: what the process says of itself, one JSON object per line, through structlog.

Records of the standard library's `logging` (aiohttp, the OpenTelemetry SDK) come out in the same form.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from gateway.telemetry.lines import LineWriter

_MASK = "***"
_SECRET_NAMES = re.compile(r"authorization|api[-_]?key|token$|secret|password|cookie", re.IGNORECASE)
_SECRET_TEXT = re.compile(r"(?:(?<=Bearer )\S+|\bhr_[A-Za-z0-9_-]{16,}|\bsk-[A-Za-z0-9_-]{16,}|(?<=://)[^/@\s]+(?=@))")


def mask_secrets(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Mask values whose name says that they are secret, and keys or credentials inside any text."""
    for name, value in event.items():
        if _SECRET_NAMES.search(name):
            event[name] = _MASK
        elif isinstance(value, str):
            event[name] = _SECRET_TEXT.sub(_MASK, value)
    return event


class _LineHandler(logging.Handler):
    """Hands formatted records to the writer's thread."""

    def __init__(self, lines: LineWriter) -> None:
        super().__init__()
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.write(self.format(record).encode("utf-8", "backslashreplace") + b"\n")


def _shared() -> Sequence[Processor]:
    return (
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="ts"),
    )


def set_up_logging(lines: LineWriter, level: str = "INFO") -> None:
    """Send structlog and `logging` to `lines`. Replaces the root logger's handlers; call once per process."""
    shared = _shared()
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.format_exc_info,
            mask_secrets,
            structlog.processors.JSONRenderer(ensure_ascii=False),
        ],
    )
    handler = _LineHandler(lines)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
