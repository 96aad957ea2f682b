"""Run a command while a real vLLM and a real SGLang serve on loopback: `python -m tests.engine COMMAND...`.

The command finds them in HEADRACE_TEST_VLLM_URL and HEADRACE_TEST_SGLANG_URL (and ..._KV_EVENTS, ..._KV_REPLAY). Its
exit status is returned, and the engines are gone afterwards.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import FrameType

from tests.engine.servers import both
from tests.support.processes import StartError, environment


def main() -> int:
    """Start both, run the command, stop both."""
    if len(sys.argv) < 2:
        print((__doc__ or "").strip(), file=sys.stderr)
        return 64
    signal.signal(signal.SIGTERM, _interrupt)  # so that a terminated run cleans up as Ctrl-C does
    with tempfile.TemporaryDirectory(prefix="headrace-engines-") as folder:
        print("starting vLLM and SGLang, about a minute ...", file=sys.stderr)
        try:
            with both(Path(folder)) as servers:
                variables = {key: value for server in servers for key, value in server.variables().items()}
                return subprocess.run(sys.argv[1:], env=environment() | variables, check=False).returncode
        except StartError as error:
            print(f"FAIL engines: {error}", file=sys.stderr)
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
    return 1


def _interrupt(signum: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
