"""The client kit: drives a running gateway with the official SDKs and, next to them, with a byte-level reader.

    python -m tests.conformance BASE_URL API_KEY MODEL [options]

Checks protocol, never intelligence: when a weak or simulated engine does not do what a prompt asks (no tool call, no
JSON), the check is SKIPPED as "weak model", not failed. Exit status: 0 all passed or skipped, 1 something failed,
2 the kit could not start.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from pathlib import Path

import anthropic
import openai

from tests.conformance import kit_chat, kit_chat_tools, kit_errors, kit_messages, kit_messages_tools, kit_responses
from tests.conformance.client import Ctx, Fail, Skip

KITS = (kit_chat, kit_chat_tools, kit_responses, kit_messages, kit_messages_tools, kit_errors)
CHECKS = [check for kit in KITS for check in kit.check.all]


def parser():
    p = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    p.add_argument("base_url")
    p.add_argument("api_key")
    p.add_argument("model")
    p.add_argument("--only", help="comma-separated name prefixes, e.g. chat,messages.tools")
    p.add_argument("--timeout", type=float, default=120)
    p.add_argument("--max-tokens", type=int, default=1024)
    p.add_argument("--json", help="write results to this file")
    p.add_argument("--no-auth", action="store_true", help="the gateway takes any key")
    p.add_argument(
        "--strict-fields", action="store_true", help="also send penalties and parallel_tool_calls without tools"
    )
    p.add_argument("--ratelimit-key")
    p.add_argument("--fault-header")
    p.add_argument("--long", type=int, default=0)
    p.add_argument("--tolerate-skips", action="store_true", help="(default) skips never fail the run")
    p.add_argument("-v", "--verbose", action="store_true")
    return p


def outcome(f, c, verbose=False):
    """PASS, SKIP or FAIL of one check, and why."""
    c.notes = []
    try:
        f(c)
    except Skip as e:
        return "SKIP", str(e)
    except Fail as e:
        return "FAIL", str(e)
    except openai.LengthFinishReasonError:
        return "SKIP", "weak model: hit max_tokens"
    except Exception as e:  # noqa: BLE001
        if verbose:
            traceback.print_exc()
        return "FAIL", f"{type(e).__name__}: {str(e)[:220]}"
    return "PASS", ""


def main():
    a = parser().parse_args()
    c = Ctx(a)
    try:
        c.raw.call("GET", "/v1/models")
    except OSError as e:
        print(f"cannot reach {c.root}: {e}", file=sys.stderr)
        return 2
    sel = [x for x in CHECKS if not a.only or any(x[0].startswith(o) for o in a.only.split(","))]
    rows = []
    print(f"gateway {c.root}  model {c.model}  openai {openai.__version__}  anthropic {anthropic.__version__}\n")
    for name, f in sel:
        t0 = time.time()
        st, why = outcome(f, c, a.verbose)
        rows.append(
            {"check": name, "result": st, "why": why, "notes": list(c.notes), "seconds": round(time.time() - t0, 2)}
        )
        print(f"{st:4}  {name:46} {rows[-1]['seconds']:6.2f}s  {why[:300]}")
        for n in c.notes:
            print(f"      note: {n[:200]}")
    k = {s: sum(r["result"] == s for r in rows) for s in ("PASS", "FAIL", "SKIP")}
    if a.json:
        Path(a.json).write_text(json.dumps(rows, indent=1))
    print(f"\n{k['PASS']} passed, {k['FAIL']} failed, {k['SKIP']} skipped")
    return 1 if k["FAIL"] else 0


if __name__ == "__main__":
    sys.exit(main())
