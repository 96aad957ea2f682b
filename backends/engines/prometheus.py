"""Just enough of Prometheus' text format to read a handful of gauges from a body of tens of kilobytes."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping

_LABEL = re.compile(rb'(\w+)="((?:[^"\\]|\\.)*)"')


class Gauges:
    """Finds the samples of a few fixed metric names; the rest of the body is skipped at the regex engine's speed."""

    __slots__ = ("_pattern",)

    def __init__(self, *names: str) -> None:
        wanted = "|".join(re.escape(name) for name in names).encode()
        self._pattern = re.compile(rb"^(" + wanted + rb")(?:\{(.*)\})? (\S+)", re.MULTILINE)

    def samples(self, body: bytes) -> Iterator[tuple[str, Mapping[str, str], float]]:
        """(name, labels, value) of each wanted sample; values that are no finite number are left out."""
        for found in self._pattern.finditer(body):
            try:
                value = float(found[3])
            except ValueError:
                continue
            if math.isfinite(value):
                yield found[1].decode(), _labels(found[2] or b""), value


def _labels(text: bytes) -> Mapping[str, str]:
    return {key.decode(): value.decode(errors="replace") for key, value in _LABEL.findall(text)}
