from __future__ import annotations

import pytest

from gateway.config.model import Admin
from gateway.config.redact import redacted
from gateway.config.references import mask_url

from .conftest import Edit, File


def _with_key(edit: Edit, reference: str) -> str:
    return edit("engine: vllm", f"engine: vllm\n    api_key: {reference}")


def test_from_the_environment(file: File, edit: Edit) -> None:
    loaded = file.load(_with_key(edit, "${KEY}"), environ={"KEY": "s3cret"})
    assert loaded.config.pools[0].api_key.get_secret_value() == "s3cret"
    assert "s3cret" not in repr(loaded)
    assert "s3cret" not in str(redacted(loaded.config))


def test_from_a_file_beside_the_configuration(file: File, edit: Edit) -> None:
    key = file.path.parent / "key"
    key.write_text("s3cret\n")
    loaded = file.load(_with_key(edit, "file:key"))
    assert loaded.config.pools[0].api_key.get_secret_value() == "s3cret"
    assert loaded.files == {file.path, key}


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("s3cret", "a secret is given by reference"),
        ("x${KEY}", "a secret is given by reference"),
        ("$KEY", "a secret is given by reference"),
        ("${MISSING}", "environment variable MISSING is not set"),
        ("file:none", "cannot read secret file none: No such file or directory"),
        ("file:empty", "secret file empty is empty"),
        ("file:binary", "cannot read secret file binary: it is not UTF-8"),
        ("file:.", "cannot read secret file .: Is a directory"),
        ("[s3cret]", "valid string"),
    ],
)
def test_a_bad_reference_is_explained_without_the_secret(file: File, edit: Edit, reference: str, message: str) -> None:
    (file.path.parent / "empty").write_text(" \n")
    (file.path.parent / "binary").write_bytes(b"\xff\xfe")
    found = file.problems(_with_key(edit, reference), environ={"KEY": "x"})
    assert message in found["pools[0].api_key"]
    assert "s3cret" not in str(found)


def test_a_url_takes_its_password_by_reference(file: File, smallest: str) -> None:
    text = smallest + "state: {url: 'redis://user:${PW}@127.0.0.1/0'}"
    config = file.load(text, environ={"PW": "s3cret"}).config
    assert config.state.url == "redis://user:s3cret@127.0.0.1/0"
    assert "s3cret" not in repr(config)
    assert redacted(config)["state"]["url"] == "redis://**********@127.0.0.1/0"


def test_a_url_with_a_password_written_out_is_refused(file: File, smallest: str) -> None:
    found = file.problems(smallest + "state: {url: 'redis://user:s3cret@127.0.0.1/0'}")
    assert "a password is given by reference" in found["state.url"]
    assert "s3cret" not in str(found)


def test_trees_built_in_python_take_values_as_they_are() -> None:
    token = Admin(token="s3cret").token
    assert token is not None
    assert token.get_secret_value() == "s3cret"


def test_masking_urls() -> None:
    assert mask_url("a http://u:p@h/x b redis://:p@h") == "a http://**********@h/x b redis://**********@h"
    assert mask_url("http://h/a@b") == "http://h/a@b"
