from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from gateway.dialects.seal import MAX_BLOB, Keys, Sealer

OLD, NEW = Keys.of_secret("old"), Keys.of_secret("new", "old")


def seal(keys: Keys = OLD, tenant: str = "a"):
    return Sealer(keys, random.Random(1).randbytes).of(tenant)


@given(st.text())
def test_what_is_sealed_opens(text):
    assert seal().open(seal().close(text, "glm")) == ("glm", text)


def test_another_tenant_cannot_open():
    assert seal(tenant="b").open(seal().close("thought", "glm")) is None


def test_keys_rotate():
    blob = seal(OLD).close("thought", "glm")
    assert blob.startswith(f"gw1.{OLD.current}.")
    assert seal(NEW).open(blob) == ("glm", "thought")
    assert NEW.current != OLD.current
    assert seal(OLD).open(seal(NEW).close("thought", "glm")) is None


@given(st.one_of(st.text(), st.text("gw1.0af_-").map(lambda tail: f"gw1.{OLD.current}.{tail}")))
def test_anything_else_is_foreign_and_no_error(blob):
    assert seal().open(blob) is None


def test_a_changed_blob_is_foreign():
    blob = seal().close("thought", "glm")
    for at in range(len(blob)):
        changed = blob[:at] + ("A" if blob[at] != "A" else "B") + blob[at + 1 :]
        assert seal().open(changed) != ("glm", "thought") or changed[:-1] == blob[:-1]


def test_too_long_is_not_sealed():
    noise = random.Random(2).randbytes(MAX_BLOB).hex()
    assert seal().close(noise, "glm") == ""
