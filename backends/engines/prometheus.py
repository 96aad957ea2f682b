"""Just enough of Prometheus' text format to read a handful of gauges from a body of tens of kilobytes."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping

_LABEL = re.compile(rb'(\w+)="((?:[^"\\]|\\.)*)"')


class Gauges:
    """Finds the samples of a few fixed metric names of one engine, all of which begin with its name and a colon.

    The rest of the body is skipped at the speed of a search for that beginning, which has to be told with the end of
    the line before it: a pattern that may begin at any line's start takes eight times as long.
    """

    __slots__ = ("_pattern",)

    def __init__(self, *names: str) -> None:
        engine = names[0].partition(":")[0]
        rests = "|".join(re.escape(name.removeprefix(f"{engine}:")) for name in names)
        self._pattern = re.compile(rf"\n({engine}:(?:{rests}))(?:\{{(.*)\}})? (\S+)".encode())

    def samples(self, body: bytes) -> Iterator[tuple[str, Mapping[str, str], float]]:
        """(name, labels, value) of each wanted sample; values that are no finite number are left out."""
        for found in self._pattern.finditer(b"\n" + body):
            try:
                value = float(found[3])
            except ValueError:
                continue
            if math.isfinite(value):
                yield found[1].decode(), _labels(found[2] or b""), value


def _labels(text: bytes) -> Mapping[str, str]:
    return {key.decode(): value.decode(errors="replace") for key, value in _LABEL.findall(text)}
