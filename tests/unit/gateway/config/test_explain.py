from __future__ import annotations

import pytest

from .conftest import Edit, File


@pytest.mark.parametrize(
    ("old", "new", "path", "message"),
    [
        ("replicas:", "replica:", "pools[0].replica", "unknown key (did you mean 'replicas'?)"),
        ("replicas:", "replica:", "pools[0].replicas", "is required"),
        ("engine: vllm", "engine: vllm\n    timeouts: {idle_ms: 3}", "pools[0].timeouts.idle_ms",
         "unknown key (the unit is in the name: 'idle_s', in seconds)"),
        ("engine: vllm", "engine: vllm\n    timeouts: {idle: 3}", "pools[0].timeouts.idle",
         "unknown key (the unit is in the name: 'idle_s', in seconds)"),
        ("engine: vllm", "engine: vllm\n    timeouts: {first_byte_timeout_s: 3}",
         "pools[0].timeouts.first_byte_timeout_s", "unknown key (did you mean 'first_byte_s'?)"),
        ("engine: vllm", "engine: vllm\n    timeouts: {idle_s: 2m}", "pools[0].timeouts.idle_s",
         "should be a valid number, unable to parse string as a number (seconds as a plain number: 120)"),
        ("port: 8080", "port: 8080, body_limit_bytes: 32MiB", "listen.body_limit_bytes",
         "should be a valid integer, unable to parse string as an integer (bytes as a plain number: 33554432)"),
        ("port: 8080", "port: eighty", "listen.port",
         "should be a valid integer, unable to parse string as an integer (a plain number)"),
        ("port: 8080", "port: 80800", "listen.port", "should be less than or equal to 65535"),
        ("engine: vllm", "engine: vllm\n    sample_ratio: 1", "pools[0].sample_ratio",
         "unknown key (it belongs under telemetry)"),
        ("model: glm", "model: 4", "pools[0].model", "should be a valid string (quote it: '4')"),
        ("model: glm", "model: on", "pools[0].model",
         "should be a valid string (YAML reads it as a switch: quote it)"),
        ("name: a", "name: a b", "pools[0].name",
         "should be a name: letters, digits and `._:/-`, at most 128, starting with a letter or digit"),
        ("auth:", "tenants: [{name: t, keys: [{id: k, sha256: abc}]}]\nauth:", "tenants[0].keys[0].sha256",
         "should be 64 lower-case hexadecimal digits; `headrace keys create` makes them"),
        ("pools: [a]", "pools: a", "models[0].pools", "should be a list"),
        ("pools: [a]", "pools: []", "models[0].pools", "should hold at least one entry"),
        ("auth: {mode: open}", "auth: open", "auth", "should be a mapping"),
    ],
)  # fmt: skip
def test_message_and_hint(file: File, edit: Edit, old: str, new: str, path: str, message: str) -> None:
    assert file.problems(edit(old, new))[path] == message


def test_known_keys_are_listed_when_none_is_close(file: File, edit: Edit) -> None:
    found = file.problems(edit("mode: open", "mode: open, zzz: 1"))
    assert found == {"auth.zzz": "unknown key (known: mode)"}
