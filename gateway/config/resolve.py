"""From the model name a client sends to the model it means."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gateway.config.model import Model


class ModelTable:
    """Exact names and aliases first, then the longest wildcard. Built once for each configuration."""

    __slots__ = ("_exact", "_prefixes", "models")

    def __init__(self, models: Iterable[Model]) -> None:
        self.models = tuple(models)
        self._exact: dict[str, Model] = {}
        prefixes: list[tuple[str, Model]] = []
        for model in self.models:
            self._exact[model.name] = model
            for alias in model.aliases:
                if alias.endswith("*"):
                    prefixes.append((alias[:-1], model))
                else:
                    self._exact[alias] = model
        self._prefixes = tuple(sorted(prefixes, key=lambda entry: -len(entry[0])))

    def resolve(self, name: str) -> Model | None:
        """The model that `name` means, or None."""
        found = self._exact.get(name)
        if found is not None:
            return found
        return next((model for prefix, model in self._prefixes if name.startswith(prefix)), None)

    def names(self) -> Iterator[str]:
        """Every name that can be listed: models and their exact aliases."""
        return iter(self._exact)
