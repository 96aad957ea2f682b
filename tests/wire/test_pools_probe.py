"""`headrace pools probe` and `pools show` against simulated engines and a gateway."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from tests.support.app import config_of, gateway, pool_of
from tests.support.simulator import simulator


async def headrace(*args: str | Path, token: str = "") -> tuple[int, str, str]:
    """Exit status and both outputs of a command, run beside this loop."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "gateway.cli",
        *map(str, args),
        env={"HEADRACE_ADMIN_TOKEN": token, "PYTHONPATH": str(Path(__file__).parents[2])},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()


def written(folder: Path, *urls: str, **pool: Any) -> Path:
    path = folder / "headrace.yaml"
    made = {"name": "a", "engine": "vllm", "model": "glm", "replicas": urls, **pool}
    tree = {"auth": {"mode": "open"}, "pools": [made], "models": [{"name": "glm", "pools": ["a"]}]}
    path.write_text(json.dumps(tree))
    return path


async def test_a_contract_with_its_evidence_and_the_recipe(tmp_path: Path) -> None:
    async with simulator(model="glm-5.3-flash", reasoning="glm") as sim:
        path = written(tmp_path, sim.server.url, model="glm-5.3-flash")
        code, out, err = await headrace("pools", "probe", "a", "--config", path)
    assert (code, err) == (0, "")
    contract, _, checks = out.partition("golden probes: ")
    lines = {line.split("│")[1].strip(): line for line in contract.splitlines() if line.startswith("│")}
    assert "low, high, max" in lines["efforts"]
    assert "probed" in lines["efforts"]
    assert "glm47" in lines["tool_parser"]
    assert "recipe" in lines["tool_parser"]
    assert "GET /v1/models: max_model_len 131072" in lines["max_context"]
    assert "no /v1/responses" in lines["storage"]
    assert "cached tokens" in checks


async def test_a_contradiction_and_a_replica_that_differs(tmp_path: Path) -> None:
    async with simulator(model="glm", block_tokens=16) as one, simulator(model="glm", block_tokens=32) as other:
        path = written(tmp_path, one.server.url, other.server.url, contract={"storage": True})
        code, out, err = await headrace("pools", "probe", "a", "--config", path)
        assert code == 1
        assert "no (declared yes, probed no)" in out
        assert err == "warning: replicas of pool 'a' differ in block_size: 16 and 32\n"
        code, out, _ = await headrace("pools", "probe", "a", "--config", path, "--json")
    report = json.loads(out)
    assert report["contradictions"] == [{"term": "storage", "declared": True, "probed": False}]
    assert [finding["term"] for finding in report["findings"]] == ["block_size"]


async def test_a_running_gateway_shows_the_contract_in_use() -> None:
    contract = {"contract": {"max_context": 4096, "efforts": ["low", "high"]}}
    async with simulator(model="glm") as sim:
        config = config_of([pool_of(sim.server.url, **contract)], admin={"token": "t"})
        async with gateway(config, ready=False) as one:
            code, out, err = await headrace("pools", "show", "a", "--admin", one.admin_url, token="t")
            assert (code, err) == (0, "")
            rows = [line.split() for line in out.splitlines()]
            assert ["TERM", "VALUE", "SOURCE", "EVIDENCE"] in rows
            assert ["efforts", "low,", "high", "declared", "-"] in rows
            code, out, _ = await headrace("pools", "show", "a", "--admin", one.admin_url, "--json", token="t")
            assert json.loads(out)["contract"]["terms"]["max_context"]["source"] in {"declared", "probed"}
