"""From a YAML file to a checked tree, or every reason why not."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from gateway.config.checks import check
from gateway.config.document import Document, SyntaxProblem, parse
from gateway.config.explain import explain
from gateway.config.known import Known
from gateway.config.model import Config
from gateway.config.problems import ConfigError, Problem
from gateway.config.references import References
from gateway.config.salvage import salvage

_ENVIRONMENT = (("HEADRACE_ADMIN_TOKEN", "admin", "token"), ("HEADRACE_STATE_URL", "state", "url"))


@dataclass(frozen=True, slots=True)
class Overrides:
    """What the command line says instead of the file."""

    host: str | None = None
    port: int | None = None
    admin_port: int | None = None


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration that can be used. `files` are all files it was made from, absolute."""

    config: Config
    files: frozenset[Path]
    warnings: tuple[Problem, ...] = ()


def load(
    path: Path,
    known: Known,
    *,
    overrides: Overrides = Overrides(),
    environ: Mapping[str, str] = os.environ,
) -> Loaded:
    """Read, validate and check `path`. Raises ConfigError with all problems at once.

    The command line goes before the environment (`HEADRACE_ADMIN_TOKEN`, `HEADRACE_STATE_URL`), that before the file.
    """
    path = path.absolute()
    document = read(path)
    _override(document.data, overrides, environ)
    references = References(environ, path.parent)
    try:
        config = Config.model_validate(document.data, context=references)
    except ValidationError as error:
        fields = tuple(explain(error))
        problems = (*document.repeated, *fields, *_beside(fields, document, references, known))
        raise ConfigError(path.name, _placed(problems, document), _files(path, references)) from None
    found = _placed((*document.repeated, *check(config, known)), document)
    faults = tuple(problem for problem in found if not problem.warning)
    if faults:
        raise ConfigError(path.name, faults, _files(path, references))
    return Loaded(config, _files(path, references), found)


def _files(path: Path, references: References) -> frozenset[Path]:
    return frozenset({path, *references.files})


def _beside(fields: tuple[Problem, ...], document: Document, references: References, known: Known) -> Iterator[Problem]:
    """Faults of the whole tree that can be told although some fields are wrong."""
    faulty = {problem.at for problem in fields}
    config = salvage(document.data, faulty, references)
    if config is None:
        return
    for problem in check(config, known):
        reported = any(problem.at[:length] in faulty for length in range(1, len(problem.at) + 1))
        if not problem.warning and not reported:
            yield problem


def read(path: Path) -> Document:
    """The file as data, not validated. Raises ConfigError when it is missing or no YAML mapping."""
    try:
        return parse(path.read_text(encoding="utf-8"))
    except SyntaxProblem as error:
        problem = error.problem
    except OSError as error:
        problem = Problem((), f"cannot read the file: {error.strerror}")
    except UnicodeDecodeError:
        problem = Problem((), "the file is not UTF-8")
    raise ConfigError(path.name, (problem,), frozenset({path}))


def _override(data: dict[str, Any], overrides: Overrides, environ: Mapping[str, str]) -> None:
    """Write overrides into the data, so that they are validated like the rest."""
    said = {"host": overrides.host, "port": overrides.port, "admin_port": overrides.admin_port}
    _merge(data, "listen", {key: value for key, value in said.items() if value is not None})
    for name, section, key in _ENVIRONMENT:
        if environ.get(name):
            _merge(data, section, {key: f"${{{name}}}"})


def _merge(data: dict[str, Any], section: str, values: Mapping[str, Any]) -> None:
    node = data.get(section, {})
    if values and isinstance(node, dict):  # anything else is left for validation to complain about
        data[section] = {**node, **values}


def _placed(problems: Iterable[Problem], document: Document) -> tuple[Problem, ...]:
    """The problems with their lines, in the order of the file."""
    placed = [problem if problem.line else replace(problem, line=document.line(problem.at)) for problem in problems]
    return tuple(sorted(placed, key=lambda problem: problem.line))
