import msgspec
import pytest

from backends import capabilities as can
from backends.contract import PoolContract, Terms
from gateway.dialects.model import (
    ImagePart,
    MediaPart,
    Reasoning,
    Request,
    TextPart,
    ToolResultPart,
    Traits,
    Turn,
)
from gateway.dialects.target import Target
from gateway.errors import Cause
from gateway.requirements import refused, requirements, speaking
from policies.enforcement import enforce
from tests.unit.policies.contracts_of_glm import NIM, RUST, SMALL


def asked(dialect="chat", budget=None, engine_path="/v1/chat/completions", **traits):
    return Request(
        dialect=dialect,
        model="glm",
        stream=False,
        traits=Traits(**traits),
        body=b"{}",
        raw={"messages": msgspec.Raw(b"[]")},
        engine_path=engine_path,
        reasoning=Reasoning(budget=budget),
    )


def test_plain():
    made = requirements(asked(prompt_bytes=6400))
    assert (made.needs, made.effort, made.endpoint) == (0, None, "/v1/chat/completions")
    assert (made.prompt_min, made.prompt_max) == (100, 6464)


@pytest.mark.parametrize(
    ("traits", "bits"),
    [
        ({"modalities": frozenset({"image", "document"})}, can.IMAGE),
        ({"modalities": frozenset({"video", "audio"})}, can.VIDEO | can.AUDIO),
        ({"tools": True}, can.TOOLS),
        ({"tools": True, "tool_choice": "named"}, can.TOOL_NAMED),
        ({"tools": False, "tool_choice": "required"}, 0),
        ({"format": "json_schema"}, can.JSON_SCHEMA),
        ({"format": "json_object", "grammar": "regex"}, can.JSON_OBJECT | can.REGEX),
        ({"logprobs": True}, can.LOGPROBS),
        ({"stops": 2}, can.STOP),
        ({"effort": "none"}, can.REASONING_OFF),
        ({"effort": 0.5}, 0),
    ],
)
def test_bits(traits, bits):
    assert requirements(asked(**traits)).needs == bits


def test_the_rest():
    made = requirements(asked(budget=100, n=3, max_output=50), lora="sql", engine_storage=True, priority=True)
    assert made.needs == can.THINKING_BUDGET | can.STORAGE | can.PRIORITY
    assert (made.lora, made.choices, made.max_output) == ("sql", 3, 50)


def test_media_are_bounded_by_their_number_and_not_by_their_bytes():
    pixels = "data:image/png;base64," + "A" * 5_000_000
    parts = [{"type": "image_url", "image_url": {"url": pixels}}, {"type": "text", "text": "x" * 640}]
    chat = asked(modalities=frozenset({"image"}), prompt_bytes=5_001_000)
    chat.raw["messages"] = msgspec.Raw(msgspec.json.encode([{"role": "user", "content": parts}]))
    made = requirements(chat)
    assert 10 <= made.prompt_min < 20
    assert 16_384 + 640 < made.prompt_max < 16_384 + 1200


def test_media_of_turns_and_of_what_tools_returned_count_too():
    asks = asked("messages", modalities=frozenset({"image", "video"}), prompt_bytes=2_000_000)
    video = MediaPart({"type": "video_url", "video_url": {"url": "data:video/mp4;base64," + "A" * 1_000_000}})
    image = ImagePart("data:image/png;base64," + "A" * 900_000)
    asks.turns = [Turn("user", [TextPart("look"), video]), Turn("tool", [ToolResultPart("c", [image])])]
    made = requirements(asks)
    assert 9 * 16_384 < made.prompt_max < 9 * 16_384 + 110_000


def test_a_count_has_no_window_to_fit():
    made = requirements(asked("messages", engine_path="/tokenize", prompt_bytes=640_000))
    assert (made.prompt_min, made.prompt_max) == (0, 0)


def test_a_codec_sees_the_contract():
    base = Target("vllm", "glm")
    terms = Terms(
        reasoning=True,
        reasoning_field="reasoning",
        efforts=("low", "medium"),
        default_effort="medium",
        reasoning_off=True,
        stop_scope="answer",
        modalities=frozenset({"text"}),
        thinking_budget=True,
    )
    seen = speaking(base, PoolContract("a", "vllm", terms))
    assert (seen.reasoning_field, seen.efforts, seen.default_effort) == ("reasoning", ("low", "medium"), "medium")
    assert (seen.reasoning_optional, seen.stop_scope, seen.images, seen.thinking_budget) == (
        True,
        "engine",
        False,
        True,
    )


def test_what_a_contract_does_not_know_stays():
    base = Target("vllm", "glm")
    assert speaking(base, PoolContract("a", "vllm")) == base
    assert speaking(base, PoolContract("a", "vllm", Terms(stop_scope="everything"))).stop_scope == "gateway"
    assert speaking(base, PoolContract("a", "vllm", Terms(reasoning=False))).stop_scope == "engine"


def test_a_refusal_names_the_field_and_every_pools_reason():
    error = refused(enforce(requirements(asked(modalities=frozenset({"video"}))), [NIM, RUST]), "glm")
    assert (error.cause, error.param) == (Cause.UNSUPPORTED_VALUE, "messages")
    assert error.message == (
        "No pool of `glm` can serve `messages` of this request: "
        "nim: video input is not validated by its python frontend; "
        "rust: video input is not validated by its rust frontend."
    )


def test_an_overflow_carries_its_numbers():
    error = refused(enforce(requirements(asked("messages", prompt_bytes=640_000)), [SMALL]), "glm")
    assert (error.cause, error.param, error.numbers) == (Cause.CONTEXT_LENGTH, "messages", (10_000, 4096))
    error = refused(enforce(requirements(asked("responses", max_output=5000)), [SMALL]), "glm")
    assert (error.cause, error.param) == (Cause.UNSUPPORTED_VALUE, "max_output_tokens")


def test_a_missing_endpoint_is_not_found():
    error = refused(enforce(requirements(asked(engine_path="/inference/v1/generate")), [NIM]), "glm")
    assert error.cause is Cause.NOT_FOUND


def test_only_a_refusal_is_told():
    with pytest.raises(ValueError, match="refuses nothing"):
        refused(enforce(requirements(asked()), [NIM]), "glm")
