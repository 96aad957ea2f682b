"""Builds the distribution: as plain Python, or with the exchange path compiled by mypyc when HEADRACE_COMPILE is 1.

Nothing else differs: a compiled module does what its source says, at two thirds of the time. `make compiled` builds it
beside the sources, never among them, so that what is edited is what runs.
"""

import os

from setuptools import setup

# What every exchange runs through. A module that defines msgspec structs or subclasses aiohttp's cannot be among them,
# who subclasses one of theirs must, and what reads unchecked values stays out: a compiled annotation is a check.
EXCHANGE_PATH = [
    "backends/client.py",
    "backends/fleet.py",
    "backends/http1.py",
    "gateway/attempt.py",
    "gateway/auth.py",
    "gateway/caller.py",
    "gateway/config/resolve.py",
    "gateway/connection.py",
    "gateway/dialects/chunk.py",
    "gateway/dialects/direct.py",
    "gateway/dialects/ids.py",
    "gateway/dialects/openings.py",
    "gateway/dialects/passbody.py",
    "gateway/dialects/passthrough.py",
    "gateway/dialects/sse.py",
    "gateway/exchange.py",
    "gateway/lane.py",
    "gateway/outgoing.py",
    "gateway/pair.py",
    "gateway/pairing.py",
    "gateway/pipeline.py",
    "gateway/placement.py",
    "gateway/responses/streams.py",
    "gateway/runtime.py",
    "gateway/stream.py",
    "gateway/telemetry/access.py",
    "gateway/telemetry/hub.py",
    "gateway/telemetry/ids.py",
    "gateway/telemetry/lines.py",
    "gateway/telemetry/metrics.py",
    "gateway/telemetry/record.py",
    "gateway/telemetry/sampling.py",
    "gateway/watch.py",
    "policies/retry.py",
    "policies/routing/plain.py",
    "policies/routing/router.py",
    "policies/routing/view.py",
]

if os.environ.get("HEADRACE_COMPILE") == "1":
    from mypyc.build import mypycify

    setup(ext_modules=mypycify(EXCHANGE_PATH, opt_level="3", debug_level="0"))
else:
    setup()
