"""What-if: recorded traffic through other routing policies, in virtual time."""

from gateway.replay.html import render_html
from gateway.replay.report import Study
from gateway.replay.study import Options, ReplayError, run
from gateway.replay.table import render_table
from gateway.replay.trace import TraceError

__all__ = ["Options", "ReplayError", "Study", "TraceError", "render_html", "render_table", "run"]
