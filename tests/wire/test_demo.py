"""`headrace demo` as its users run it: what it prints works, and nothing is left of it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

COMMAND = (sys.executable, "-m", "gateway.cli")
LAST_LINE = "Ctrl-C ends the demo and everything it started."
OPERATIONS = Path(__file__).parents[2] / "docs" / "operations.md"


@dataclass
class Demo:
    """A running demo and all that it printed."""

    process: subprocess.Popen[str]
    text: str

    def after(self, label: str) -> str:
        found = re.search(rf"^{label} +(\S+)", self.text, re.MULTILINE)
        assert found is not None, self.text
        return found[1]

    @property
    def token(self) -> str:
        return self.text.partition("HEADRACE_ADMIN_TOKEN=")[2].split()[0]

    def headrace(self, *args: str) -> object:
        """A command against the demo's admin port, as JSON."""
        environ = {**os.environ, "HEADRACE_ADMIN_TOKEN": self.token}
        admin = self.after("Metrics").removesuffix("/metrics")
        done = subprocess.run(
            (*COMMAND, *args, "--admin", admin, "--json"), env=environ, capture_output=True, text=True, check=True
        )
        return json.loads(done.stdout)

    def children(self) -> list[int]:
        """Processes that it has started."""
        text = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return [int(pid) for pid in text.split()]


def start() -> Demo:
    """Start a demo, on any ports, and wait until it has said everything."""
    process = subprocess.Popen((*COMMAND, "demo"), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    lines: list[str] = []
    for line in process.stdout:
        lines.append(line)
        if line.strip() == LAST_LINE:
            break
    return Demo(process, "".join(lines))


@pytest.fixture(scope="module")
def demo() -> Iterator[Demo]:
    running = start()
    try:
        assert running.text.endswith(f"{LAST_LINE}\n"), running.text
        yield running
    finally:
        running.process.kill()
        running.process.communicate()


def ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_sample_traffic_reached_both_pools(demo: Demo) -> None:
    rows = [line.split() for line in demo.text.splitlines() if line.startswith("demo")]
    assert {(row[0], row[1]) for row in rows} >= {("demo-h100", "h100"), ("demo-b300", "b300")}
    assert all(float(row[2]) > 0 and int(row[4]) > 0 for row in rows)


def test_the_curl_command_works_as_printed(demo: Demo) -> None:
    command = demo.text.partition("\ncurl ")[2].partition("\n\n")[0]
    done = subprocess.run(f"curl -sS {command}", shell=True, capture_output=True, text=True, check=True)
    answer = json.loads(done.stdout)
    assert answer["choices"][0]["message"]["content"]
    assert answer["choices"][0]["finish_reason"] in ("stop", "length")


def test_the_sdk_snippet_works_as_printed(demo: Demo) -> None:
    snippet = "from openai" + demo.text.partition("\nfrom openai")[2].partition(LAST_LINE)[0]
    done = subprocess.run((sys.executable, "-c", snippet), capture_output=True, text=True, check=True)
    assert done.stdout.strip()


def test_commands_read_its_admin_api(demo: Demo) -> None:
    pools = demo.headrace("pools", "list")
    assert isinstance(pools, list)
    assert [(pool["name"], pool["ready"]) for pool in pools] == [("h100", 1), ("b300", 1)]
    shown = demo.headrace("pools", "show", "b300")
    assert isinstance(shown, dict)
    assert [replica["state"] for replica in shown["replicas"]] == ["ready"]
    top = demo.headrace("top")
    assert isinstance(top, dict)
    assert top["exchanges"] >= 9
    assert top["output tokens"] > 0
    assert top["recent"]


def test_the_documented_metrics_are_there(demo: Demo) -> None:
    with urllib.request.urlopen(demo.after("Metrics"), timeout=10) as answer:
        page = answer.read().decode()
    documented = set(re.findall(r"^\| `(headrace_\w+)`", OPERATIONS.read_text(), re.MULTILINE))
    assert documented - set(re.findall(r"^# TYPE (headrace_\w+)", page, re.MULTILINE)) == set()


def test_ctrl_c_ends_everything(demo: Demo) -> None:
    children = demo.children()
    assert len(children) == 3
    demo.process.send_signal(signal.SIGINT)
    out, _ = demo.process.communicate(timeout=30)
    assert out == "\ndemo ended\n"
    assert demo.process.returncode == 0
    assert all(map(ended, children))
    assert not Path(demo.after("Logs")).exists()


def test_an_engine_that_dies_ends_it_with_its_log() -> None:
    demo = start()
    children = demo.children()
    os.kill(children[0], signal.SIGKILL)
    out, _ = demo.process.communicate(timeout=30)
    assert demo.process.returncode == 1
    assert out.startswith("headrace: h100 ended with status -9")
    deadline = time.monotonic() + 10
    while not all(map(ended, children)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert all(map(ended, children))
