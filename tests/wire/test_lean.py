"""Libraries imported without parts of theirs still do what they should."""

from __future__ import annotations

import datetime as dt
import ipaddress
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

TLS = """
import asyncio, ssl
from gateway import lean
lean.import_aiohttp()
assert "load_default_certs" in vars(ssl.SSLContext) and "set_default_verify_paths" not in vars(ssl.SSLContext)
import aiohttp, uvloop

async def serve(reader, writer):
    await reader.readuntil(b"\\r\\n\\r\\n")
    writer.write(b"HTTP/1.1 204 No Content\\r\\n\\r\\n")
    writer.close()

async def main():
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain("own.crt", "own.key")
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    async with aiohttp.ClientSession() as session:
        for verify in (True, True, False):
            try:
                async with session.get(url, ssl=verify) as answer:
                    print(answer.status)
            except aiohttp.ClientConnectorCertificateError:
                print("refused")

uvloop.run(main())
"""
STRUCTLOG = """
import sys
from gateway import lean
lean.import_structlog()
assert "rich" not in sys.modules and "better_exceptions" not in sys.modules
import rich.table
from gateway.telemetry.lines import LineWriter
from gateway.telemetry.operations import set_up_logging
import structlog
lines = LineWriter(sys.stdout.buffer.write)
set_up_logging(lines)
try:
    1 / 0
except ZeroDivisionError:
    structlog.get_logger("x").exception("broken")
lines.start()
lines.close()
"""


def run(code: str, folder: Path, **environ: str) -> str:
    argv, env = (sys.executable, "-c", code), os.environ | environ
    done = subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A certificate of 127.0.0.1 that signs itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "own")])
    start = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), 1, start, start + dt.timedelta(days=36500))
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = made.add_extension(address, critical=False)
    made = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    pem = serialization.Encoding.PEM
    (tmp_path / "own.crt").write_bytes(made.sign(key, hashes.SHA256()).public_bytes(pem))
    (tmp_path / "own.key").write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return tmp_path / "own.crt"


def test_authorities_that_are_read_late_are_those_of_the_machine(own: Path, tmp_path: Path) -> None:
    assert run(TLS, tmp_path, SSL_CERT_FILE=str(own)).split() == ["204", "204", "204"]
    assert run(TLS, tmp_path).split() == ["refused", "refused", "204"]


def test_the_log_tells_of_exceptions_and_colours_come_back(tmp_path: Path) -> None:
    assert "ZeroDivisionError: division by zero" in run(STRUCTLOG, tmp_path)
