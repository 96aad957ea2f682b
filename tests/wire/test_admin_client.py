"""The commands that read the admin API, against something that is not a willing gateway."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from gateway.cli.client import AdminClient
from gateway.cli.output import UserError

PAGES = {"/page": (200, b"<html>"), "/list": (200, b'{"pools": []}'), "/broken": (500, b"")}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        status, body = PAGES.get(self.path, (404, b""))
        if self.headers.get("authorization") != "Bearer t":
            status, body = 401, b""
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_an_answer(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # a gateway is not behind the proxy of the shell
    assert AdminClient(f"{url}/", {"HEADRACE_ADMIN_TOKEN": "t"}).json("/list") == {"pools": []}


@pytest.mark.parametrize(
    ("path", "token", "message"),
    [
        ("/list", "", "wants the token of the admin API: HEADRACE_ADMIN_TOKEN is not set"),
        ("/list", "x", "wants the token of the admin API: HEADRACE_ADMIN_TOKEN is wrong"),
        ("/page", "t", "does not answer with JSON: is this a Headrace admin port?"),
        ("/broken", "t", "answers with status 500"),
        ("/none", "t", "answers with status 404"),
    ],
)
def test_a_refusal_is_one_line(url: str, path: str, token: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        AdminClient(url, {"HEADRACE_ADMIN_TOKEN": token}).json(path)
    assert str(caught.value).endswith(message)
    assert caught.value.code == 1


def test_nobody_there() -> None:
    with pytest.raises(UserError, match="no gateway answers at http://127"):
        AdminClient("http://127.0.0.1:1", {}).json("/list")


def test_not_a_url() -> None:
    with pytest.raises(UserError, match="is no URL") as caught:
        AdminClient("file:///etc/passwd", {})
    assert caught.value.code == 2
