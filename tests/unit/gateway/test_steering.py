from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.steering import STEERING_FIELDS, strip_fields

NOTHING: frozenset[str] = frozenset()
split = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode

# Every field that one of the engines' documents names as steering it.
NAMED = [
    "kv_transfer_params", "ec_transfer_params", "bootstrap_host", "bootstrap_port", "bootstrap_room",
    "bootstrap_pair_key", "rid", "request_id", "cache_salt", "extra_key", "routed_dp_rank",
    "data_parallel_rank", "disagg_prefill_dp_rank", "attn_dp_rank", "session_id", "session_params",
    "custom_logit_processor", "custom_params", "priority", "lora_path", "input_ids", "input_embeds",
    "prompt_embeds", "return_hidden_states", "vllm_xargs", "kv_hints", "mm_hashes", "decode_tp_size",
]  # fmt: skip


def body(**fields: object) -> dict[str, msgspec.Raw]:
    return split(msgspec.json.encode({"model": "m", "messages": [], "temperature": 0.5, **fields}))


@pytest.mark.parametrize("name", NAMED)
def test_a_steering_field_is_taken_out(name: str) -> None:
    fields = body(**{name: {"do_remote_prefill": True}})
    assert strip_fields(fields, NOTHING) == (name,)
    assert fields == body()


@pytest.mark.parametrize("name", NAMED)
def test_a_granted_field_passes_as_it_is(name: str) -> None:
    fields = body(**{name: 1})
    assert strip_fields(fields, frozenset({name})) == ()
    assert bytes(fields[name]) == b"1"


def test_a_grant_is_for_one_field() -> None:
    fields = body(priority=1, rid="x", top_k=4)
    assert strip_fields(fields, frozenset({"priority"})) == ("rid",)
    assert set(fields) == {"model", "messages", "temperature", "priority", "top_k"}


def test_an_ordinary_body_is_left_alone() -> None:
    fields = body(stream=True, max_tokens=5, tools=[], guided_json={}, unknown_extension=1)
    before = dict(fields)
    assert strip_fields(fields, NOTHING) == ()
    assert fields == before


def test_names_come_out_sorted() -> None:
    assert strip_fields(body(rid="x", cache_salt="y", bootstrap_room=0), NOTHING) == (
        "bootstrap_room",
        "cache_salt",
        "rid",
    )


def test_a_name_spelt_with_escapes_is_seen() -> None:
    fields = split(rb'{"model":"m","\u006bv_transfer_params":{"do_remote_prefill":true}}')
    assert strip_fields(fields, NOTHING) == ("kv_transfer_params",)


def test_sampling_parameters_are_looked_into() -> None:
    fields = body(sampling_params={"temperature": 1, "extra_args": {"kv_transfer_params": {}}, "n": 1})
    assert strip_fields(fields, NOTHING) == ("sampling_params.extra_args",)
    assert msgspec.json.decode(fields["sampling_params"]) == {"temperature": 1, "n": 1}


def test_arguments_of_the_chat_template_are_looked_into() -> None:
    fields = body(chat_template_kwargs={"enable_thinking": False, "chat_template": "{{ 1 }}"})
    assert strip_fields(fields, NOTHING) == ("chat_template_kwargs.chat_template",)
    assert msgspec.json.decode(fields["chat_template_kwargs"]) == {"enable_thinking": False}
    granted = body(chat_template_kwargs={"chat_template": "{{ 1 }}"})
    assert strip_fields(granted, frozenset({"chat_template"})) == ()


@pytest.mark.parametrize("value", [None, 3, "x", [], {"temperature": 1}])
def test_sampling_parameters_without_steering_stay_as_they_are(value: object) -> None:
    fields = body(sampling_params=value)
    assert strip_fields(fields, NOTHING) == ()
    assert bytes(fields["sampling_params"]) == msgspec.json.encode(value)


@given(st.dictionaries(st.sampled_from([*NAMED, *sorted(STEERING_FIELDS), "model", "n", "x"]), st.integers()))
def test_nothing_that_steers_is_left_and_nothing_else_is_lost(sent: dict[str, int]) -> None:
    fields = split(msgspec.json.encode(sent))
    stripped = strip_fields(fields, NOTHING)
    assert set(fields) == set(sent) & {"model", "n", "x"}
    assert set(stripped) == set(sent) - set(fields)
