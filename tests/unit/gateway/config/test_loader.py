from __future__ import annotations

import pytest

from gateway.config.loader import Overrides
from gateway.config.problems import ConfigError

from .conftest import Edit, File


def test_the_smallest_configuration_loads(file: File, smallest: str) -> None:
    loaded = file.load(smallest)
    assert loaded.config.pools[0].replicas == ("http://127.0.0.1:9101", "http://127.0.0.1:9102")
    assert loaded.config.models[0].pools == ("a",)
    assert loaded.files == {file.path}
    assert loaded.warnings == ()


def test_every_fixed_key_is_accepted(file: File) -> None:
    config = file.load(
        """
        listen: {host: 127.0.0.1, port: 8080, admin_port: 9090}
        auth: {mode: open}
        state: {url: "redis://127.0.0.1:6379/0"}
        telemetry: {otlp_endpoint: "http://127.0.0.1:4318", sample_ratio: 0.5}
        tenants: [{name: t}]
        pools:
          - name: a
            engine: sglang
            model: glm
            replicas: ["http://127.0.0.1:9101"]
            breaker: {enabled: false}
            probe: {golden: off}
            kv_events: off
        models: [{name: glm, pools: [a], aliases: ["claude-*", gpt-4o], routing: latency}]
        """
    ).config
    assert not config.pools[0].breaker.enabled
    assert not config.pools[0].probe.golden
    assert not config.pools[0].kv_events.enabled


def test_all_problems_come_at_once_in_the_order_of_the_file(file: File) -> None:
    with pytest.raises(ConfigError) as caught:
        file.load(
            """
            auth: {mode: opn}
            pools:
              - name: a
                engine: vlm
                model: glm
                replicas: ["http://127.0.0.1:9101", "127.0.0.1:9102"]
                replica: []
            models:
              - {name: glm, pools: [a, b]}
            """
        )
    found = [(problem.line, problem.path) for problem in caught.value.problems]
    assert found == [
        (2, "auth.mode"),
        (5, "pools[0].engine"),
        (7, "pools[0].replicas[1]"),
        (8, "pools[0].replica"),
        (10, "models[0].pools[1]"),
    ]
    assert str(caught.value).splitlines()[1] == (
        "headrace.yaml: line 5: pools[0].engine: unknown engine 'vlm' (did you mean 'vllm'?)"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file must hold a mapping"),
        ("- a", "the file must hold a mapping"),
        ("a: [", "not YAML"),
        ("a: \x00", "not YAML"),
        ("a: 2024-99-99", "not YAML"),
        ("pools: &a [*a]", "pools[0]"),
    ],
)
def test_text_that_is_no_configuration(file: File, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=r"^headrace\.yaml: ") as caught:
        file.load(text)
    assert message in str(caught.value)


def test_a_missing_file_and_one_that_is_not_text(file: File) -> None:
    with pytest.raises(ConfigError, match="cannot read the file: No such file"):
        file.load()
    file.path.write_bytes(b"a: \xff\xfe")
    with pytest.raises(ConfigError, match="not UTF-8"):
        file.load()


def test_a_key_given_twice_is_refused(file: File, edit: Edit) -> None:
    found = file.problems(edit("engine: vllm", "engine: vllm\n    engine: sglang"))
    assert found == {"pools[0].engine": "given twice, first on line 6"}


def test_an_overriding_merge_is_no_repetition(file: File) -> None:
    config = file.load(
        """
        auth: {mode: open}
        pools:
          - &base {name: a, engine: vllm, model: m, replicas: ["http://127.0.0.1:9101"]}
          - {<<: *base, name: b, replicas: ["http://127.0.0.1:9102"]}
        models: [{name: m, pools: [a, b]}]
        """
    ).config
    assert [pool.name for pool in config.pools] == ["a", "b"]


def test_the_command_line_goes_before_the_file(file: File, smallest: str) -> None:
    listen = file.load(smallest, overrides=Overrides(host="::1", port=1, admin_port=2)).config.listen
    assert (listen.host, listen.port, listen.admin_port) == ("::1", 1, 2)
    file.write(smallest.replace("listen:", "# listen:"))
    assert file.load(overrides=Overrides(port=7)).config.listen.port == 7


def test_overrides_are_checked_like_the_file(file: File, smallest: str) -> None:
    with pytest.raises(ConfigError, match="`open` is refused while listen"):
        file.load(smallest, overrides=Overrides(host="0.0.0.0"))


def test_the_environment_goes_before_the_file(file: File, smallest: str) -> None:
    environ = {"HEADRACE_ADMIN_TOKEN": "t0ken", "HEADRACE_STATE_URL": "redis://:pw@127.0.0.1/0"}
    config = file.load(smallest + "state: {url: 'memory://'}", environ=environ).config
    assert config.admin.token is not None
    assert config.admin.token.get_secret_value() == "t0ken"
    assert config.state.url == "redis://:pw@127.0.0.1/0"
