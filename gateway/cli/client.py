"""A small client of the admin API."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer

from gateway.cli.output import UserError

AdminOption = Annotated[
    str, typer.Option("--admin", metavar="URL", help="Admin port of the gateway. Token: HEADRACE_ADMIN_TOKEN.")
]
DEFAULT_ADMIN = "http://127.0.0.1:9090"


class AdminClient:
    """Reads from one gateway. Every failure is a UserError of one line."""

    def __init__(self, url: str, environ: Mapping[str, str], *, timeout_s: float = 5.0) -> None:
        if urlsplit(url).scheme not in ("http", "https"):
            raise UserError(f"--admin: {url!r} is no URL; write it like {DEFAULT_ADMIN}", code=2)
        self._url = url.rstrip("/")
        self._token = environ.get("HEADRACE_ADMIN_TOKEN", "")
        self._timeout_s = timeout_s
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # gateways are not behind a proxy

    def rows(self, what: str, query: str = "") -> list[dict[str, Any]]:
        """Entries of `/admin/v1/<what>`."""
        found: list[dict[str, Any]] = self.json(f"/admin/v1/{what}{query}")[what]
        return found

    def json(self, path: str) -> dict[str, Any]:
        """A JSON document of the admin API."""
        try:
            answer: dict[str, Any] = json.loads(self.text(path))
        except ValueError:
            raise UserError(f"{self._url}{path} does not answer with JSON: is this a Headrace admin port?") from None
        return answer

    def text(self, path: str) -> str:
        """The body of a page."""
        headers = {"authorization": f"Bearer {self._token}"} if self._token else {}
        request = urllib.request.Request(f"{self._url}{path}", headers=headers)  # noqa: S310 - scheme checked above
        try:
            with self._opener.open(request, timeout=self._timeout_s) as answer:
                body: bytes = answer.read()
        except urllib.error.HTTPError as error:
            error.close()
            raise UserError(self._refused(path, error.code)) from None
        except (OSError, urllib.error.URLError) as error:
            raise UserError(f"no gateway answers at {self._url}: {getattr(error, 'reason', error)}") from None
        return body.decode(errors="replace")

    def _refused(self, path: str, status: int) -> str:
        if status in (401, 403):
            given = "is wrong" if self._token else "is not set"
            return f"{self._url} wants the token of the admin API: HEADRACE_ADMIN_TOKEN {given}"
        return f"{self._url}{path} answers with status {status}"
