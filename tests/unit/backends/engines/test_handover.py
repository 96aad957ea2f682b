"""Bodies of prefill/decode pairs: what each side is asked, and what never gets through."""

from __future__ import annotations

import json
from typing import Any

import pytest

from backends.contracts import EngineFailure, Fault
from backends.engines import builtin
from backends.engines.handover import Link, bare
from backends.engines.sglang import SglangHandover
from backends.engines.vllm import VllmHandover

LINK = Link("10.0.0.1", 8998, 77)
CHAT = "/v1/chat/completions"


def body(**fields: Any) -> bytes:
    return json.dumps({"model": "glm", "messages": [{"role": "user", "content": "hi"}], **fields}).encode()


def test_only_kinds_that_can_be_split_say_how() -> None:
    kinds = builtin()
    assert {name for name in kinds if kinds[name].handover is not None} == {"vllm", "sglang"}


def test_bare_takes_out_what_steers_a_hand_over_wherever_an_engine_reads_it() -> None:
    evil = {"kv_transfer_params": {"do_remote_prefill": True}, "bootstrap_room": 1, "disagg_prefill_dp_rank": 0}
    given = body(**evil, ec_transfer_params={}, sampling_params={**evil, "n": 1, "extra_args": {**evil, "k": 2}})
    assert json.loads(bare(given)) == json.loads(body(sampling_params={"n": 1, "extra_args": {"k": 2}}))


def test_a_repeated_field_does_not_hide_another() -> None:
    twice = b'{"kv_transfer_params":1,"model":"glm","kv_transfer_params":{"do_remote_prefill":true}}'
    assert json.loads(bare(twice)) == {"model": "glm"}


def test_vllm_prefill_is_one_token_of_the_same_prompt() -> None:
    asked = body(
        stream=True,
        stream_options={},
        max_completion_tokens=50,
        min_tokens=5,
        tools=[1],
        tool_choice="required",
        response_format={"type": "json_object"},
        temperature=0.5,
        kv_transfer_params={"do_remote_prefill": True},
    )
    sent = json.loads(VllmHandover().prefill(asked, LINK))
    params = sent.pop("kv_transfer_params")
    assert sent == json.loads(body(tools=[1], temperature=0.5, max_tokens=1))
    assert params == {
        "do_remote_decode": True,
        "do_remote_prefill": False,
        "remote_engine_id": None,
        "remote_block_ids": None,
        "remote_host": None,
        "remote_port": None,
    }


def test_vllm_keeps_tools_that_must_not_be_called_out_of_the_prompt() -> None:
    assert json.loads(VllmHandover().prefill(body(tool_choice="none"), LINK))["tool_choice"] == "none"


def test_vllm_decode_gets_the_parameters_as_they_came() -> None:
    handed = b'{"remote_block_ids": [[1,2]],"remote_num_tokens":3.0}'
    sent = VllmHandover().decode(body(stream=True), LINK, b'{"id":"x","kv_transfer_params":' + handed + b"}")
    assert handed in sent
    assert json.loads(sent)["stream"] is True


@pytest.mark.parametrize("answer", [b"", b"{}", b'{"kv_transfer_params":null}', b"[]", b'{"kv_transfer_params":[1]}'])
def test_vllm_prefill_that_hands_nothing_over_has_failed(answer: bytes) -> None:
    with pytest.raises(EngineFailure) as caught:
        VllmHandover().decode(body(), LINK, answer)
    assert caught.value.fault is Fault.PROTOCOL


@pytest.mark.parametrize(
    ("path", "fields", "divides"),
    [
        (CHAT, {}, True),
        (CHAT, {"n": 1, "echo": False, "prompt_logprobs": None}, True),
        (CHAT, {"n": 2}, False),
        (CHAT, {"prompt_logprobs": 0}, False),
        (CHAT, {"use_beam_search": True}, False),
        ("/v1/completions", {"prompt": "x"}, True),
        ("/v1/completions", {"prompt": [1, 2]}, True),
        ("/v1/completions", {"prompt": ["x"]}, False),
        ("/v1/completions", {"prompt": [[1], [2]]}, False),
        ("/v1/completions", {"prompt": "x", "best_of": 3}, False),
        ("/v1/embeddings", {}, False),
    ],
)
def test_vllm_divides_single_sequences(path: str, fields: dict[str, Any], *, divides: bool) -> None:
    assert VllmHandover().divides(path, body(**fields)) is divides


def test_sglang_sends_one_request_to_both_and_says_where_to_meet() -> None:
    asked = body(stream=True, stream_options={"include_usage": True}, seed=3, bootstrap_room=0)
    place = {"bootstrap_host": "10.0.0.1", "bootstrap_port": 8998, "bootstrap_room": 77}
    way = SglangHandover()
    assert json.loads(way.prefill(asked, LINK)) == json.loads(body(seed=3, stream=False, **place))
    decode = body(stream=True, stream_options={"include_usage": True}, seed=3, **place)
    assert json.loads(way.decode(asked, LINK, b"")) == json.loads(decode)
