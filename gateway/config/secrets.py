"""Secrets in the configuration: named by reference, read while the tree is validated, never shown.

`${NAME}` is an environment variable, `file:PATH` the text of a file (relative to the configuration file). A secret
written into the configuration itself is refused. Trees built in Python (no `SecretSource` in the validation context)
take the value as it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, SecretStr, ValidationInfo

_ENV = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_USERINFO = re.compile(r"(?<=://)[^/@\s]+(?=@)")
_PASSWORD = re.compile(r"://[^/@\s]*:(?P<password>[^/@\s]+)@")
MASK = "**********"


@dataclass(slots=True)
class SecretSource:
    """Where references are looked up; `files` collects what was read, so that a reload can watch it."""

    environ: Mapping[str, str]
    base: Path
    files: set[Path] = field(default_factory=set)

    def env(self, name: str) -> str:
        """Value of an environment variable. Raises ValueError when it is unset or empty."""
        value = self.environ.get(name, "")
        if not value:
            raise ValueError(f"environment variable {name} is not set")
        return value

    def file(self, name: str) -> str:
        """Text of a file without surrounding white space. Raises ValueError when there is none."""
        path = self.base / name
        self.files.add(path)
        try:
            value = path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise ValueError(f"cannot read secret file {name}: {reason}") from None
        if not value:
            raise ValueError(f"secret file {name} is empty")
        return value

    def secret(self, reference: str) -> str:
        """The secret that a reference names. Raises ValueError when it is no reference or cannot be read."""
        if reference.startswith("file:"):
            return self.file(reference.removeprefix("file:"))
        match = _ENV.fullmatch(reference)
        if match is None:
            raise ValueError("a secret is given by reference, never in the configuration itself")
        return self.env(match[1])

    def url(self, text: str) -> str:
        """A URL with its `${NAME}` parts filled in. Raises ValueError for a password written out."""
        if text.startswith("file:"):
            return self.file(text.removeprefix("file:"))
        match = _PASSWORD.search(text)
        if match and not _ENV.fullmatch(match["password"]):
            raise ValueError("a password is given by reference, never in the configuration itself")
        return _ENV.sub(lambda found: self.env(found[1]), text)


def _source(info: ValidationInfo) -> SecretSource | None:
    return info.context if isinstance(info.context, SecretSource) else None


def _secret(value: Any, info: ValidationInfo) -> Any:
    source = _source(info)
    return source.secret(value) if source and isinstance(value, str) else value


def _url(value: Any, info: ValidationInfo) -> Any:
    source = _source(info)
    return source.url(value) if source and isinstance(value, str) else value


Secret = Annotated[SecretStr, BeforeValidator(_secret, json_schema_input_type=str)]
SecretUrl = Annotated[str, BeforeValidator(_url, json_schema_input_type=str)]


def mask_url(text: str) -> str:
    """The text with the user part of every URL in it masked."""
    return _USERINFO.sub(MASK, text)
