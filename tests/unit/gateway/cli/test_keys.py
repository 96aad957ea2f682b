from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import yaml

from gateway.config.model import Tenant

from .conftest import Headrace


def test_a_new_key_and_the_text_that_admits_it(headrace: Headrace) -> None:
    result = headrace("keys", "create", "--tenant", "search")
    key = re.search(r"^key \(shown only now\): (\S+)$", result.out, re.MULTILINE)
    assert key is not None
    snippet = yaml.safe_load(result.out.partition("configuration:\n")[2])
    tenant = Tenant.model_validate(snippet["tenants"][0])
    assert tenant.name == "search"
    assert tenant.keys[0].sha256 == hashlib.sha256(key[1].encode()).hexdigest()


def test_a_new_key_as_json(headrace: Headrace) -> None:
    first, second = (json.loads(headrace("keys", "create", "--tenant", "t", "--json").out) for _ in range(2))
    assert set(first) == {"tenant", "key", "id", "sha256"}
    assert first["key"] != second["key"]
    assert first["id"] != second["id"]


def test_a_tenant_must_have_a_valid_name(headrace: Headrace) -> None:
    result = headrace("keys", "create", "--tenant", "a b")
    assert result.code == 2
    assert "--tenant" in result.err


def test_list(headrace: Headrace, config: Path) -> None:
    assert headrace("keys", "list", "--config", config).out.splitlines()[1].split() == ["search", "k-1", "abababababab"]
    rows = json.loads(headrace("keys", "list", "--config", config, "--tenant", "search", "--json").out)
    assert rows == [{"tenant": "search", "id": "k-1", "sha256": "ab" * 32}]
    result = headrace("keys", "list", "--config", config, "--tenant", "none")
    assert (result.code, result.err) == (1, "headrace: headrace.yaml: there is no tenant 'none'\n")


def test_list_needs_no_secret_of_the_rest(headrace: Headrace, config: Path) -> None:
    config.write_text(config.read_text() + "admin: {token: '${NOT_SET_HERE}'}\n")
    assert headrace("keys", "list", "--config", config).code == 0


def test_revoke_names_the_line(headrace: Headrace, config: Path) -> None:
    result = headrace("keys", "revoke", "--tenant", "search", "--id", "k-1", "--config", config)
    assert result.code == 0
    assert f"delete the entry of key k-1 in {config}, line 6" in result.out
    assert "id: k-1" in config.read_text().splitlines()[5]


def test_rotate_makes_a_successor(headrace: Headrace, config: Path) -> None:
    before = config.read_text()
    result = headrace("keys", "rotate", "--tenant", "search", "--id", "k-1", "--config", config)
    assert result.code == 0
    assert "key (shown only now): hr" in result.out
    assert f"delete the entry of key k-1 in {config}, line 6" in result.out
    assert config.read_text() == before


def test_a_key_that_is_not_there(headrace: Headrace, config: Path) -> None:
    for command in ("revoke", "rotate"):
        result = headrace("keys", command, "--tenant", "search", "--id", "k-2", "--config", config)
        assert result.code == 1
        assert "tenant 'search' has no key 'k-2'" in result.err
        assert result.out == ""


def test_tenants_that_are_not_valid(headrace: Headrace, config: Path) -> None:
    config.write_text("tenants: [{nme: a}]")
    result = headrace("keys", "list", "--config", config)
    assert result.code == 2
    assert "headrace check" in result.err
