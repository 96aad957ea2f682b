from __future__ import annotations

from typing import Any

from gateway.config.diff import diff
from gateway.config.model import Config


def _config(**changes: Any) -> Config:
    pools = [
        {"name": name, "engine": "vllm", "model": "m", "replicas": [f"http://{name}:1"], "api_key": f"key-{name}"}
        for name in ("a", "b")
    ]
    return Config.model_validate({"pools": pools, "models": [{"name": "m", "pools": ["a", "b"]}], **changes})


def _lines(old: Config, new: Config) -> list[str]:
    return [str(change) for change in diff(old, new)]


def test_equal_trees_do_not_differ() -> None:
    assert diff(_config(), _config()) == ()


def test_a_value_deep_down() -> None:
    assert _lines(_config(), _config(listen={"cors": {"max_age_s": 1}})) == ["listen.cors.max_age_s: 600 -> 1"]


def test_entries_are_matched_by_name() -> None:
    old = _config()
    a, b = old.pools
    heavy = b.model_copy(update={"weight": 2.0})
    assert _lines(old, old.model_copy(update={"pools": (a, heavy)})) == ["pools[b].weight: 1.0 -> 2.0"]
    assert _lines(old, old.model_copy(update={"pools": (heavy, a)})) == [
        "pools[b].weight: 1.0 -> 2.0",
        "pools: ('a', 'b') -> ('b', 'a')",
    ]


def test_entries_come_and_go() -> None:
    old = _config()
    new = old.model_copy(update={"pools": (old.pools[0], old.pools[1].model_copy(update={"name": "c"}))})
    assert _lines(old, new) == ["pools[b]: {...} -> -", "pools[c]: - -> {...}"]


def test_secrets_are_compared_and_not_shown() -> None:
    old = _config()
    other = Config.model_validate({"pools": [{**old.pools[0].model_dump(), "api_key": "new"}], "models": old.models})
    lines = _lines(old.model_copy(update={"pools": old.pools[:1]}), other)
    assert lines == ["pools[a].api_key: ********** -> **********"]
    keys = [[{"name": "t", "keys": [{"id": "k", "sha256": digit * 64}]}] for digit in "12"]
    assert _lines(_config(tenants=keys[0]), _config(tenants=keys[1])) == [
        "tenants[t].keys[k].sha256: ********** -> **********"
    ]
    assert _lines(_config(), _config(state={"url": "redis://:pw@h"})) == [
        "state.url: 'memory://' -> 'redis://**********@h'"
    ]


def test_bound_sockets_need_a_restart() -> None:
    changes = diff(_config(), _config(listen={"port": 1, "drain_s": 1}))
    assert [(change.path, change.needs_restart) for change in changes] == [
        ("listen.port", True),
        ("listen.drain_s", False),
    ]


def test_what_is_made_once_needs_a_restart() -> None:
    tls = [{"cert_file": name, "key_file": "k"} for name in "ab"]
    made_once: list[dict[str, Any]] = [
        {"state": {"url": "redis://h"}}, {"state": {"memory_limit_bytes": 1}}, {"kv_index": {"blocks": 2000}},
        {"retry": {"budget": 0.5}}, {"retry": {"budget_min": 1}}, {"listen": {"tls": tls[0]}},
        {"listen": {"body_limit_bytes": 1}}, {"listen": {"request_timeout_s": 1}},
    ]  # fmt: skip
    for change in made_once:
        assert [found.needs_restart for found in diff(_config(), _config(**change))] == [True]
    renamed = diff(_config(listen={"tls": tls[0]}), _config(listen={"tls": tls[1]}))
    assert [found.needs_restart for found in renamed] == [True]
