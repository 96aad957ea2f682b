"""What the configuration refers to: secrets by name, files by path. Read while the tree is validated.

`${NAME}` is an environment variable, `file:PATH` the text of a file. Paths are relative to the configuration file. A
secret written into the configuration itself is refused, and no secret is ever shown. Trees built in Python (without
`References` in the validation context) take values as they are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, SecretStr, ValidationInfo

_ENV = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_USERINFO = re.compile(r"(?<=://)[^/@\s]+(?=@)")
_PASSWORD = re.compile(r"://[^/@\s]*:(?P<password>[^/@\s]+)@")
MASK = "**********"


@dataclass(slots=True)
class References:
    """Where references are looked up; `files` collects what was named, so that a reload can watch it."""

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

    def path(self, name: str) -> str:
        """A path relative to the configuration file as one that is right from anywhere."""
        path = self.base / name
        self.files.add(path)
        return str(path)

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


def _refs(info: ValidationInfo) -> References | None:
    return info.context if isinstance(info.context, References) else None


def _secret(value: Any, info: ValidationInfo) -> Any:
    refs = _refs(info)
    return refs.secret(value) if refs and isinstance(value, str) else value


def _url(value: Any, info: ValidationInfo) -> Any:
    refs = _refs(info)
    return refs.url(value) if refs and isinstance(value, str) else value


Secret = Annotated[SecretStr, BeforeValidator(_secret, json_schema_input_type=str)]
SecretUrl = Annotated[str, BeforeValidator(_url, json_schema_input_type=str)]


def _path(value: str, info: ValidationInfo) -> str:
    refs = _refs(info)
    return refs.path(value) if refs else value


FilePath = Annotated[str, AfterValidator(_path)]


def mask_url(text: str) -> str:
    """The text with the user part of every URL in it masked."""
    return _USERINFO.sub(MASK, text)
