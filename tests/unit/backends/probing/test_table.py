import io

from rich.console import Console

from backends.contract import Fact, Source, build, layer
from backends.probing.run import ProbeReport
from backends.probing.session import Check
from backends.probing.table import checks_table, contract_table


def printed(table):
    console = Console(width=160, record=True, file=io.StringIO())
    console.print(table)
    return console.export_text()


def contract():
    probed = {"max_context": Fact(4096, Source.PROBED, 1_796_096_875.0, "GET /v1/models: max_model_len 4096")}
    return build("a", "vllm", [layer({"max_context": 8192, "storage": False}, Source.DECLARED), probed])


def test_a_contract_with_source_evidence_and_difference():
    lines = printed(contract_table(contract())).splitlines()
    row = next(line for line in lines if "max_context" in line)
    for text in ("4096 (declared 8192, probed 4096)", "probed, 2026-12-01 03:47:55Z", "GET /v1/models"):
        assert text in row
    row = next(line for line in lines if "storage" in line)
    assert "no" in row
    assert "declared" in row
    assert not [line for line in lines if "kv_layout" in line]


def test_golden_probes():
    checks = (Check("plain", True, "fine"), Check("stop", None, "500"), Check("image", False, "odd"))
    text = printed(checks_table(ProbeReport(contract(), checks, 12, 345, complete=False)))
    assert "12 requests, 345 tokens, not complete" in " ".join(text.split())
    for word in ("passed", "showed nothing", "failed"):
        assert word in text
