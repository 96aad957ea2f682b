"""`headrace pools`: what a running gateway knows of its pools."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from gateway.cli.client import DEFAULT_ADMIN, AdminClient, AdminOption
from gateway.cli.output import JsonOption, UserError, print_json, print_table
from gateway.config.problems import nearest

PoolArgument = Annotated[str, typer.Argument(metavar="POOL", help="Name of the pool.", show_default=False)]


def list_pools(admin: AdminOption = DEFAULT_ADMIN, as_json: JsonOption = False) -> None:
    """List the pools of a running gateway."""
    pools = AdminClient(admin, os.environ).rows("pools")
    if as_json:
        print_json(pools)
        return
    head = ("POOL", "ENGINE", "MODEL", "HARDWARE", "READY", "REPLICAS", "IN FLIGHT")
    rows = (
        (p["name"], p["engine"], p["model"], p["hardware"] or "-", p["ready"], p["replicas"], p["in_flight"])
        for p in pools
    )
    print_table(head, rows)


def show(pool: PoolArgument, admin: AdminOption = DEFAULT_ADMIN, as_json: JsonOption = False) -> None:
    """Show one pool, its replicas and its contract."""
    client = AdminClient(admin, os.environ)
    found = find(client.rows("pools"), pool)
    replicas = [replica for replica in client.rows("replicas") if replica["pool"] == pool]
    contract = next((entry for entry in client.rows("contracts") if entry["pool"] == pool), None)
    if as_json:
        print_json({**found, "replicas": replicas, "contract": contract})
        return
    for key, value in found.items():
        typer.echo(f"{key:10}{'-' if value is None else value}")
    typer.echo()
    head = ("REPLICA", "URL", "STATE", "VERSION", "IN FLIGHT", "RUNNING", "WAITING", "KV USED", "REASON")
    print_table(head, (replica_row(replica) for replica in replicas))
    if contract is not None:
        typer.echo("\nheld out: a probe contradicts its declaration\n" if contract["held"] else "")
        print_table(("TERM", "VALUE", "SOURCE", "EVIDENCE"), contract_rows(contract))


def find(pools: list[dict[str, Any]], name: str) -> dict[str, Any]:
    """The pool of that name. Raises UserError when there is none."""
    for pool in pools:
        if pool["name"] == name:
            return pool
    hint = nearest(name, (pool["name"] for pool in pools))
    raise UserError(f"there is no pool {name!r}" + (f" ({hint})" if hint else ""))


def contract_rows(contract: dict[str, Any]) -> Iterator[tuple[object, ...]]:
    """A line per known term; one that contradicts its declaration tells both values."""
    against = {
        entry["term"]: f" (declared {entry['declared']}, probed {entry['probed']})"
        for entry in contract["contradictions"]
    }
    for term, fact in contract["terms"].items():
        yield term, f"{fact['value']}{against.get(term, '')}", fact["source"], fact["evidence"] or "-"


def replica_row(replica: dict[str, Any]) -> tuple[object, ...]:
    """A replica as a line of a table."""
    engine = replica["engine"]
    return (
        replica["id"],
        replica["url"],
        replica["state"],
        replica["version"] or "-",
        replica["in_flight"],
        engine["running"],
        engine["waiting"],
        f"{engine['kv_used']:.0%}",
        replica["reason"] or "-",
    )
