"""Checks over the whole tree: what no single field can know."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import cast
from urllib.parse import SplitResult, urlsplit

from gateway.config.known import Known
from gateway.config.model import Config, Listen, Tls
from gateway.config.pairs import check_pairs, prefill_pools
from gateway.config.problems import PathParts, Problem, nearest, spell
from gateway.config.recipes import check_recipes


def check(config: Config, known: Known) -> Iterator[Problem]:
    """Every fault and warning of a tree that is valid field by field."""
    yield from _listeners(config)
    yield from _tenants(config)
    yield from _pools(config, known)
    yield from check_recipes(config)
    yield from check_pairs(config)
    yield from _models(config)
    yield from _routing(config, known)
    yield from _urls(config)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a listener on `host`."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]").partition("%")[0]).is_loopback
    except ValueError:
        return False


def _listeners(config: Config) -> Iterator[Problem]:
    listen = config.listen
    if config.auth.mode == "open":
        for key, host in (("host", listen.host), ("admin_host", listen.admin_host)):
            if not is_loopback(host):
                yield Problem(
                    ("auth", "mode"),
                    f"`open` is refused while listen.{key} is {host!r}",
                    "use `keys`, or listen on 127.0.0.1 only",
                )
    if listen.port and listen.port == listen.admin_port and _overlap(listen.host, listen.admin_host):
        yield Problem(("listen", "admin_port"), f"is the same as listen.port: {listen.port}")
    if listen.tls:
        yield from _tls(listen.tls)


def _overlap(one: str, other: str) -> bool:
    return one == other or bool({one, other} & {"", "0.0.0.0", "::"})  # noqa: S104 - compared, not bound


def _tls(tls: Tls) -> Iterator[Problem]:
    import ssl  # here: few configurations need it, and it is slow to import

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tls.cert_file, tls.key_file)
    except ssl.SSLError as error:
        yield Problem(("listen", "tls"), f"certificate and key do not load: {error.reason or error}")
    except OSError:
        for key, path in (("cert_file", tls.cert_file), ("key_file", tls.key_file)):
            yield from _readable(("listen", "tls", key), path)


def _readable(at: PathParts, path: str) -> Iterator[Problem]:
    try:
        with open(path, "rb"):  # noqa: PTH123 - a check, nothing is read
            pass
    except OSError as error:
        yield Problem(at, f"cannot read {path}: {error.strerror}")


def _repeats(entries: Iterator[tuple[PathParts, str]], what: str) -> Iterator[Problem]:
    """One problem for each value that an earlier entry has already."""
    first: dict[str, PathParts] = {}
    for at, value in entries:
        if value in first:
            yield Problem(at, f"{what} {value!r} is taken by {spell(first[value])}")
        first.setdefault(value, at)


def _tenants(config: Config) -> Iterator[Problem]:
    tenants = config.tenants
    if config.auth.mode == "keys" and not any(tenant.keys for tenant in tenants):
        yield Problem(
            ("tenants",),
            "no tenant has a key: every request will be refused",
            "`headrace keys create --tenant NAME` makes one",
            warning=True,
        )
    yield from _repeats(((("tenants", i, "name"), t.name) for i, t in enumerate(tenants)), "name")
    keys = [(("tenants", i, "keys", j), key) for i, t in enumerate(tenants) for j, key in enumerate(t.keys)]
    yield from _repeats((((*at, "sha256"), key.sha256) for at, key in keys), "key")
    for i, tenant in enumerate(tenants):
        ids = ((("tenants", i, "keys", j, "id"), key.id) for j, key in enumerate(tenant.keys))
        yield from _repeats(ids, "id")
        yield from _tenant_models(config, i)


def _tenant_models(config: Config, index: int) -> Iterator[Problem]:
    names = {name for model in config.models for name in (model.name, *model.aliases)}
    for j, pattern in enumerate(config.tenants[index].models):
        at = ("tenants", index, "models", j)
        if "*" in pattern[:-1]:
            yield Problem(at, f"{pattern!r}: `*` may stand only at the end")
        elif not pattern.endswith("*") and pattern not in names:
            yield Problem(at, f"no model or alias is called {pattern!r}", nearest(pattern, names))


def _pools(config: Config, known: Known) -> Iterator[Problem]:
    yield from _repeats(((("pools", i, "name"), p.name) for i, p in enumerate(config.pools)), "name")
    replicas: list[tuple[PathParts, str]] = []
    for i, pool in enumerate(config.pools):
        kind = pool.engine
        if known.engines and kind not in known.engines:
            yield Problem(("pools", i, "engine"), f"unknown engine {kind!r}", nearest(kind, known.engines))
        for j, url in enumerate(pool.replicas):
            at = ("pools", i, "replicas", j)
            problem = _replica(at, url, config.listen)
            if problem:
                yield problem
            else:
                replicas.append((at, _origin(urlsplit(url))))
    yield from _repeats(iter(replicas), "replica")


def _replica(at: PathParts, url: str, listen: Listen) -> Problem | None:
    """What is wrong with the base URL of one engine."""
    split = _split(url)
    if split is None or split.scheme not in ("http", "https") or not split.hostname:
        return Problem(at, "is no base URL", "write it like http://10.0.0.1:8000")
    if split.username or split.password:
        return Problem(at, "holds a user or password", "the key of an engine goes into api_key, by reference")
    if split.query or split.fragment:
        return Problem(at, "holds a query or fragment; a base URL has none")
    if split.path.rstrip("/").endswith("/v1"):
        return Problem(at, "ends in /v1", f"leave it out: {url.rstrip('/').removesuffix('/v1')}")
    own = {p for p in (listen.port, listen.admin_port) if p}
    if _port(split) in own and is_loopback(split.hostname):
        return Problem(at, "points at a port of this gateway")
    return None


def _split(url: str) -> SplitResult | None:
    """The parts of a URL; None when it has no valid ones. The port is read here because reading it can fail."""
    try:
        split = urlsplit(url)
        return split if split.port != 0 else None
    except ValueError:
        return None


def _port(split: SplitResult) -> int:
    return split.port or (443 if split.scheme == "https" else 80)


def _origin(split: SplitResult) -> str:
    host = cast("str", split.hostname)
    return f"{split.scheme}://{f'[{host}]' if ':' in host else host}:{_port(split)}{split.path.rstrip('/')}"


def _models(config: Config) -> Iterator[Problem]:
    pools = {pool.name for pool in config.pools}
    names: list[tuple[PathParts, str]] = [(("models", i, "name"), m.name) for i, m in enumerate(config.models)]
    for i, model in enumerate(config.models):
        names += [(("models", i, "aliases", j), alias) for j, alias in enumerate(model.aliases)]
        for j, alias in enumerate(model.aliases):
            yield from _alias(("models", i, "aliases", j), alias)
        for j, pool in enumerate(model.pools):
            if pool not in pools:
                yield Problem(("models", i, "pools", j), f"there is no pool {pool!r}", nearest(pool, pools))
        yield from _repeats(((("models", i, "pools", j), pool) for j, pool in enumerate(model.pools)), "pool")
    yield from _repeats(iter(names), "name")
    used = {pool for model in config.models for pool in model.pools} | prefill_pools(config)
    for i, entry in enumerate(config.pools):
        if entry.name not in used:
            yield Problem(("pools", i), f"no model uses pool {entry.name!r}", warning=True)


def _alias(at: PathParts, alias: str) -> Iterator[Problem]:
    if not alias or alias != alias.strip():
        yield Problem(at, "is empty or has white space around it")
    elif "*" in alias[:-1]:
        yield Problem(at, f"{alias!r}: `*` may stand only at the end", "like claude-*")


def _routing(config: Config, known: Known) -> Iterator[Problem]:
    if not known.routing:
        return
    chosen = [(("models", i, "routing"), model.routing) for i, model in enumerate(config.models)]
    chosen += [(("tenants", i, "routing"), tenant.routing) for i, tenant in enumerate(config.tenants)]
    for at, name in chosen:
        if name is not None and name not in known.routing:
            yield Problem(at, f"unknown routing profile {name!r}", nearest(name, known.routing))


def _urls(config: Config) -> Iterator[Problem]:
    scheme = config.state.url.partition("://")[0]
    if scheme not in ("memory", "redis", "rediss", "unix"):
        yield Problem(("state", "url"), "unknown scheme", "memory://, redis://HOST:PORT/DB, rediss:// or unix://PATH")
    endpoint = config.telemetry.otlp_endpoint
    if endpoint is not None:
        split = _split(endpoint)
        if split is None or split.scheme not in ("http", "https") or not split.hostname:
            yield Problem(("telemetry", "otlp_endpoint"), "is no URL", "the OTLP/HTTP base, like http://collector:4318")
