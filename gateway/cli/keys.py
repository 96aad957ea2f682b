"""`headrace keys`: makes keys, and says what to change in the configuration, which is where keys live."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gateway.cli.output import ConfigOption, JsonOption, UserError, print_json, print_table

if TYPE_CHECKING:
    from pathlib import Path

    from gateway.config.document import Document
    from gateway.config.model import Tenant

TenantOption = Annotated[str, typer.Option(help="Name of the tenant.", show_default=False)]
IdOption = Annotated[str, typer.Option("--id", help="Id of the key, as `keys list` prints it.", show_default=False)]


def create(tenant: TenantOption, as_json: JsonOption = False) -> None:
    """Make a key. It is printed once; the configuration gets its hash."""
    _require_name(tenant)
    key, entry = _new_key()
    if as_json:
        print_json({"tenant": tenant, "key": key, **entry})
        return
    typer.echo(f"key (shown only now): {key}\n\nadd to the configuration:\n{_snippet(tenant, entry)}")


def list_keys(
    config: ConfigOption,
    tenant: Annotated[str | None, typer.Option(help="Only this tenant.", show_default=False)] = None,
    as_json: JsonOption = False,
) -> None:
    """List keys by id. Nothing printed here lets anybody in."""
    _, tenants = _tenants(config)
    chosen = [entry for entry in tenants if tenant in (None, entry.name)]
    if tenant is not None and not chosen:
        raise UserError(f"{config.name}: there is no tenant {tenant!r}")
    rows = [(entry.name, key.id, key.sha256) for entry in chosen for key in entry.keys]
    if as_json:
        print_json([{"tenant": name, "id": key_id, "sha256": digest} for name, key_id, digest in rows])
    else:
        print_table(("TENANT", "ID", "SHA256"), ((name, key_id, digest[:12]) for name, key_id, digest in rows))


def revoke(tenant: TenantOption, key_id: IdOption, config: ConfigOption) -> None:
    """Say which line of the configuration to delete to end a key. Changes nothing itself."""
    line = _line_of(config, tenant, key_id)
    typer.echo(
        f"delete the entry of key {key_id} in {config}, line {line}.\n"
        "A running gateway sees the change by itself: new requests with this key are refused from then on."
    )


def rotate(tenant: TenantOption, key_id: IdOption, config: ConfigOption) -> None:
    """Make a successor of a key, and say how to change over. Changes nothing itself."""
    line = _line_of(config, tenant, key_id)
    key, entry = _new_key()
    typer.echo(
        f"key (shown only now): {key}\n\n"
        f"1. add to the configuration, beside the old key:\n{_snippet(tenant, entry)}\n"
        f"2. give the new key to the clients\n"
        f"3. delete the entry of key {key_id} in {config}, line {line}"
    )


def _require_name(tenant: str) -> None:
    from pydantic import ValidationError

    from gateway.config.model import Tenant

    try:
        Tenant(name=tenant)
    except ValidationError:
        raise UserError(f"--tenant: {tenant!r} cannot be a name: letters, digits and `._:/-`", code=2) from None


def _new_key() -> tuple[str, dict[str, str]]:
    import secrets

    from gateway.auth import generate_key

    key = generate_key()
    return key.text, {"id": f"k-{secrets.token_hex(4)}", "sha256": key.sha256}


def _snippet(tenant: str, entry: dict[str, str]) -> str:
    return f"tenants:\n  - name: {tenant}\n    keys:\n      - id: {entry['id']}\n        sha256: {entry['sha256']}"


def _tenants(config: Path) -> tuple[Document, tuple[Tenant, ...]]:
    """Only the tenants: secrets of the rest need not be at hand where keys are managed."""
    from pydantic import TypeAdapter, ValidationError

    from gateway.config.loader import read
    from gateway.config.model import Tenant

    document = read(config)
    try:
        return document, TypeAdapter(tuple[Tenant, ...]).validate_python(document.data.get("tenants", ()))
    except ValidationError:
        raise UserError(f"{config.name}: its tenants are not valid: see `headrace check {config}`", code=2) from None


def _line_of(config: Path, tenant: str, key_id: str) -> int:
    document, tenants = _tenants(config)
    for i, entry in enumerate(tenants):
        for j, key in enumerate(entry.keys):
            if (entry.name, key.id) == (tenant, key_id):
                return document.line(("tenants", i, "keys", j))
    raise UserError(f"{config.name}: tenant {tenant!r} has no key {key_id!r}: see `headrace keys list`")
