from __future__ import annotations

import json

from gateway.config.model import Config
from gateway.config.redact import redacted


def test_nothing_secret_is_left_and_the_rest_is_json() -> None:
    config = Config.model_validate(
        {
            "admin": {"token": "s3cret"},
            "state": {"url": "redis://u:s3cret@h/0"},
            "telemetry": {"otlp_endpoint": "http://u:s3cret@h"},
            "tenants": [{"name": "t", "grants": ["b", "a"], "keys": [{"id": "k", "sha256": "5" * 64}]}],
            "pools": [{"name": "a", "engine": "vllm", "model": "m", "replicas": ["http://h"], "api_key": "s3cret"}],
            "models": [{"name": "m", "pools": ["a"]}],
        }
    )
    text = json.dumps(redacted(config))
    assert "s3cret" not in text
    assert "5555" not in text
    plain = json.loads(text)
    assert plain["tenants"][0]["grants"] == ["a", "b"]
    assert plain["tenants"][0]["keys"][0]["id"] == "k"
    assert plain["pools"][0]["api_key"] == plain["admin"]["token"] == "**********"
    assert plain["pools"][0]["timeouts"]["connect_s"] == 3.0
