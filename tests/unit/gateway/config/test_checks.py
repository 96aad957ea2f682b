from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from gateway.config.checks import is_loopback

from .conftest import Edit, File

HASH = "a" * 64


@pytest.mark.parametrize(
    ("old", "new", "path", "message"),
    [
        ("engine: vllm", "engine: tgi", "pools[0].engine", "unknown engine 'tgi' (known: nim, sglang, vllm)"),
        ("pools: [a]", "pools: [b]", "models[0].pools[0]", "there is no pool 'b' (known: a)"),
        ("pools: [a]", "pools: [a, a]", "models[0].pools[1]", "pool 'a' is taken by models[0].pools[0]"),
        ("name: glm", "name: glm\n    aliases: [glm]", "models[0].aliases[0]", "name 'glm' is taken by models[0].name"),
        ("name: glm", "name: glm\n    aliases: ['c*', 'c*']", "models[0].aliases[1]",
         "name 'c*' is taken by models[0].aliases[0]"),
        ("name: glm", "name: glm\n    aliases: ['*-mini']", "models[0].aliases[0]",
         "'*-mini': `*` may stand only at the end (like claude-*)"),
        ("name: glm", "name: glm\n    aliases: ['']", "models[0].aliases[0]", "is empty or has white space around it"),
        ("name: glm", "name: glm\n    routing: p2", "models[0].routing",
         "unknown routing profile 'p2' (did you mean 'p2c'?)"),
        (":9102", ":9101/", "pools[0].replicas[1]", "replica 'http://127.0.0.1:9101' is taken by pools[0].replicas[0]"),
        (":9102", ":9102/v1/", "pools[0].replicas[1]", "ends in /v1 (leave it out: http://127.0.0.1:9102)"),
        (":9102", ":8080", "pools[0].replicas[1]", "points at a port of this gateway"),
        (":9102", ":9102?a=b", "pools[0].replicas[1]", "holds a query or fragment; a base URL has none"),
        (":9102", ":91020", "pools[0].replicas[1]", "is no base URL (write it like http://10.0.0.1:8000)"),
        ("http://127.0.0.1:9102", "tcp://a:1", "pools[0].replicas[1]",
         "is no base URL (write it like http://10.0.0.1:8000)"),
        ("127.0.0.1:9102", "u:p@a:1", "pools[0].replicas[1]",
         "holds a user or password (the key of an engine goes into api_key, by reference)"),
        ("admin_port: 9090", "admin_port: 8080", "listen.admin_port", "is the same as listen.port: 8080"),
        ("host: 127.0.0.1", "host: 10.0.0.1", "auth.mode",
         "`open` is refused while listen.host is '10.0.0.1' (use `keys`, or listen on 127.0.0.1 only)"),
        ("host: 127.0.0.1", "admin_host: '::'", "auth.mode",
         "`open` is refused while listen.admin_host is '::' (use `keys`, or listen on 127.0.0.1 only)"),
        ("auth:", "state: {url: 'mysql://x'}\nauth:", "state.url",
         "unknown scheme (memory://, redis://HOST:PORT/DB, rediss:// or unix://PATH)"),
        ("auth:", "telemetry: {otlp_endpoint: 'collector:4317'}\nauth:", "telemetry.otlp_endpoint",
         "is no URL (the OTLP/HTTP base, like http://collector:4318)"),
        ("auth:", "tenants: [{name: t}, {name: t}]\nauth:", "tenants[1].name", "name 't' is taken by tenants[0].name"),
        ("auth:", "tenants: [{name: t, models: [glmm]}]\nauth:", "tenants[0].models[0]",
         "no model or alias is called 'glmm' (did you mean 'glm'?)"),
        ("auth:", "tenants: [{name: t, models: ['g*m']}]\nauth:", "tenants[0].models[0]",
         "'g*m': `*` may stand only at the end"),
        ("auth:", "tenants: [{name: t, routing: fast}]\nauth:", "tenants[0].routing",
         "unknown routing profile 'fast' (known: latency, p2c)"),
    ],
)  # fmt: skip
def test_fault(file: File, edit: Edit, old: str, new: str, path: str, message: str) -> None:
    assert file.problems(edit(old, new)) == {path: message}


def test_pool_and_model_names_are_unique(file: File) -> None:
    found = file.problems(
        """
        auth: {mode: open}
        pools:
          - {name: a, engine: vllm, model: m, replicas: ["http://127.0.0.1:9101"]}
          - {name: a, engine: vllm, model: m, replicas: ["http://127.0.0.1:9102"]}
        models:
          - {name: m, pools: [a]}
          - {name: m, pools: [a]}
        """
    )
    assert found == {
        "pools[1].name": "name 'a' is taken by pools[0].name",
        "models[1].name": "name 'm' is taken by models[0].name",
    }


def test_a_key_belongs_to_one_tenant(file: File, edit: Edit) -> None:
    tenants = f"""
tenants:
  - {{name: t, keys: [{{id: k, sha256: {HASH}}}]}}
  - {{name: u, keys: [{{id: k, sha256: {HASH}}}, {{id: k, sha256: {"b" * 64}}}]}}
"""
    found = file.problems(edit("auth:", f"{tenants}\nauth:"))
    assert set(found) == {"tenants[1].keys[0].sha256", "tenants[1].keys[1].id"}


def test_warnings_do_not_refuse(file: File, edit: Edit) -> None:
    text = edit("mode: open", "mode: keys") + "  - {name: b, pools: [a]}\n"
    spare = "  - {name: b, engine: nim, model: m, replicas: ['http://127.0.0.1:9103']}\nmodels:"
    loaded = file.load(text.replace("models:", spare))
    assert [(warning.path, warning.warning) for warning in loaded.warnings] == [("tenants", True), ("pools[1]", True)]


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("[::1]", True), ("localhost", True), ("0.0.0.0", False),
     ("::", False), ("10.0.0.1", False), ("", False), ("gateway.example", False)],
)  # fmt: skip
def test_loopback(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


def _certificate(folder: Path, name: str) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    start = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    builder = x509.CertificateBuilder(subject, subject, key.public_key(), 1, start, start + dt.timedelta(days=36500))
    pem = serialization.Encoding.PEM
    (folder / f"{name}.crt").write_bytes(builder.sign(key, hashes.SHA256()).public_bytes(pem))
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / f"{name}.key").write_bytes(private)


def _tls(edit: Edit, cert: str, key: str) -> str:
    return edit("port: 8080", f"port: 8080, tls: {{cert_file: {cert}, key_file: {key}}}")


def test_certificates_are_found_beside_the_configuration(file: File, edit: Edit, tmp_path: Path) -> None:
    _certificate(tmp_path, "a")
    loaded = file.load(_tls(edit, "a.crt", "a.key"))
    assert loaded.config.listen.tls is not None
    assert loaded.config.listen.tls.cert_file == str(tmp_path / "a.crt")
    assert loaded.files == {file.path, tmp_path / "a.crt", tmp_path / "a.key"}


def test_certificates_that_do_not_load(file: File, edit: Edit, tmp_path: Path) -> None:
    _certificate(tmp_path, "a")
    _certificate(tmp_path, "b")
    found = file.problems(_tls(edit, "a.crt", "b.key"))
    assert found["listen.tls"].startswith("certificate and key do not load:")
    found = file.problems(_tls(edit, "a.crt", "c.key"))
    assert found == {"listen.tls.key_file": f"cannot read {tmp_path}/c.key: No such file or directory"}
