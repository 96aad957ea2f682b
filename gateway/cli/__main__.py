"""`python -m gateway.cli`: the same as the command `headrace`."""

from __future__ import annotations

from gateway.cli import main

main()
