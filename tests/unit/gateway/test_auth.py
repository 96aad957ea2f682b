from __future__ import annotations

from hashlib import sha256

import pytest

from gateway.auth import KEY_PREFIX, Authenticator, Identity, generate_key
from gateway.config.model import ApiKey, Tenant
from gateway.errors import Cause, GatewayError


def key(text: str, key_id: str = "k1") -> ApiKey:
    return ApiKey(id=key_id, sha256=sha256(text.encode()).hexdigest())


TEAM = Tenant(name="team", keys=(key("one"), key("two", "k2")), grants=frozenset({"priority"}))
OTHER = Tenant(name="other", keys=(key("three", "k3"),))


def refusal(authenticator: Authenticator, authorization: str | None = None, x_api_key: str | None = None) -> str:
    with pytest.raises(GatewayError) as raised:
        authenticator.identify(authorization, x_api_key)
    assert raised.value.cause is Cause.UNAUTHENTICATED
    assert raised.value.headers == (("www-authenticate", "Bearer"),)
    return raised.value.message


@pytest.mark.parametrize(
    ("authorization", "x_api_key", "tenant", "key_id"),
    [
        ("Bearer one", None, "team", "k1"),
        ("bearer  two ", None, "team", "k2"),
        (None, "three", "other", "k3"),
        ("Bearer one", "three", "team", "k1"),
        ("Bearer wrong", "three", "other", "k3"),
        ("Basic b25l", "one", "team", "k1"),
    ],
)
def test_a_known_key_names_its_tenant(
    authorization: str | None, x_api_key: str | None, tenant: str, key_id: str
) -> None:
    identity = Authenticator("keys", (TEAM, OTHER)).identify(authorization, x_api_key)
    assert (identity.name, identity.key_id) == (tenant, key_id)


def test_an_identity_carries_what_its_tenant_was_granted() -> None:
    identity = Authenticator("keys", (TEAM, OTHER)).identify("Bearer one", None)
    assert identity.grants == {"priority"}
    assert identity.tenant is TEAM


@pytest.mark.parametrize(
    ("authorization", "x_api_key"),
    [
        ("Bearer wrong", None),
        ("Bearer one2", None),
        ("Bearer ONE", None),
        (None, "Bearer one"),
        ("Bearer \udc80\udcff", None),
        (None, sha256(b"one").hexdigest()),
    ],
)
def test_any_other_key_is_refused(authorization: str | None, x_api_key: str | None) -> None:
    message = refusal(Authenticator("keys", (TEAM, OTHER)), authorization, x_api_key)
    assert message == "The API key is not valid."


@pytest.mark.parametrize(("authorization", "x_api_key"), [(None, None), ("", ""), ("Bearer ", None), ("one", None)])
def test_no_key_is_told_how_to_send_one(authorization: str | None, x_api_key: str | None) -> None:
    assert "x-api-key" in refusal(Authenticator("keys", (TEAM,)), authorization, x_api_key)


@pytest.mark.parametrize("tenants", [(), (Tenant(name="keyless"),)])
def test_nothing_configured_means_refuse(tenants: tuple[Tenant, ...]) -> None:
    authenticator = Authenticator("keys", tenants)
    assert "No API key is configured" in refusal(authenticator)
    assert "No API key is configured" in refusal(authenticator, "Bearer one")


def test_open_lets_everybody_in_and_still_knows_keys() -> None:
    authenticator = Authenticator("open", (TEAM,))
    nobody = authenticator.identify(None, None)
    assert (nobody.name, nobody.key_id, nobody.grants) == ("anonymous", "", frozenset())
    assert nobody.may_use("anything")
    assert authenticator.identify("Bearer sk-placeholder", None) is nobody
    assert authenticator.identify("Bearer one", None).name == "team"


def test_a_reload_revokes() -> None:
    before = Authenticator("keys", (TEAM, OTHER))
    after = Authenticator("keys", (TEAM.model_copy(update={"keys": TEAM.keys[1:]}), OTHER))
    assert before.identify("Bearer one", None).key_id == "k1"
    assert refusal(after, "Bearer one") == "The API key is not valid."
    assert after.identify("Bearer two", None).key_id == "k2"


def test_one_key_for_two_tenants_is_an_error() -> None:
    with pytest.raises(ValueError, match="key 'k9' of tenant 'twin' is configured twice"):
        Authenticator("keys", (TEAM, Tenant(name="twin", keys=(key("one", "k9"),))))


def test_a_refusal_does_not_repeat_the_key() -> None:
    assert "hunter2" not in refusal(Authenticator("keys", (TEAM,)), "Bearer hunter2")


@pytest.mark.parametrize(
    ("models", "allowed", "refused"),
    [
        (("*",), ("glm", "x", ""), ()),
        (("glm",), ("glm",), ("glm-2", "GLM", "")),
        (("claude-*", "glm"), ("claude-", "claude-opus-4", "glm"), ("claude", "gpt-4o")),
        ((), (), ("glm",)),
        (("g*m",), ("g*m",), ("glm",)),
    ],
)
def test_models_a_tenant_may_use(models: tuple[str, ...], allowed: tuple[str, ...], refused: tuple[str, ...]) -> None:
    identity = Identity(Tenant(name="t", models=models), "k")
    assert [identity.may_use(model) for model in (*allowed, *refused)] == [True] * len(allowed) + [False] * len(refused)


def test_a_model_may_be_listed_by_either_of_its_names() -> None:
    identity = Identity(Tenant(name="t", models=("glm", "claude-*")), "k")
    identity.require_model("gpt-4o", "glm")
    identity.require_model("claude-opus-4", "big")
    with pytest.raises(GatewayError) as raised:
        identity.require_model("gpt-4o", "big")
    assert (raised.value.cause, raised.value.param) == (Cause.FORBIDDEN, "model")


def test_new_keys_are_long_distinct_and_accepted() -> None:
    new, other = generate_key(), generate_key()
    assert new.text != other.text
    assert new.text.startswith(KEY_PREFIX)
    assert len(new.text) == len(KEY_PREFIX) + 43
    tenant = Tenant(name="t", keys=(ApiKey(id="k", sha256=new.sha256),))
    authenticator = Authenticator("keys", (tenant,))
    assert authenticator.identify(f"Bearer {new.text}", None).name == "t"
    assert refusal(authenticator, f"Bearer {other.text}")
