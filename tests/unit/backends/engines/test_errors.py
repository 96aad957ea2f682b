"""Error bodies seen on the wire, and what must be understood of each."""

import json
from pathlib import Path

import pytest

from backends.contracts import Fault
from backends.engines import builtin

CAPTURES = Path(__file__).parents[3] / "data" / "captures" / "engine_errors.jsonl"
SEEN = [json.loads(line) for line in CAPTURES.read_text().splitlines()]
ENGINES = builtin()


@pytest.mark.parametrize("case", SEEN, ids=[f"{case['engine']}-{case['name']}" for case in SEEN])
def test_seen_error_is_understood(case):
    failure = ENGINES[case["engine"]].failure(case["status"], case["content_type"], case["body"].encode())
    want = case["want"]
    assert failure.fault.value == want["fault"]
    assert failure.status == want["status"]
    assert failure.param == want.get("param")
    assert failure.code == want.get("code")
    assert list(failure.numbers) == want.get("numbers", [])
    assert failure.message == want["message"]


@pytest.mark.parametrize("case", SEEN, ids=[f"{case['engine']}-{case['name']}" for case in SEEN])
def test_nothing_of_the_host_or_the_input_leaks(case):
    message = ENGINES[case["engine"]].failure(case["status"], case["content_type"], case["body"].encode()).message
    for leak in ("site-packages", ".py", "'input'", "Traceback", "Valid aliases", "'tool_choice': 'none'", "\n"):
        assert leak not in message
    assert len(message) <= 400


def test_own_faults_are_retryable_and_the_clients_are_not():
    for case in SEEN:
        failure = ENGINES[case["engine"]].failure(case["status"], case["content_type"], case["body"].encode())
        assert failure.retryable is (failure.fault is not Fault.CLIENT)
        if failure.code == "context_length_exceeded":
            assert not failure.retryable


LEAKS = [
    ("connect to tcp://10.2.3.4:5557 failed", "connect to <url> failed"),
    ("peer 10.2.3.4:5557 gone", "peer <address> gone"),
    ("peer [fe80::1:2:3:4]:80 gone", "peer <address> gone"),
    ("cannot read /var/lib/models/secret/config.json now", "cannot read <path> now"),
    ("<Foo object at 0x7f3a2b1c>", "<Foo object at <address>>"),
    ("POST /v1/chat/completions failed", "POST /v1/chat/completions failed"),
    ("model org/name is fine", "model org/name is fine"),
    (f"bad value '{'s' * 80}'", "bad value <hidden>"),
    (
        (
            "1 validation error for Chat\nmessages\n  Field required [type=missing, input_value={'q': 'my secret'}, "
            "input_type=dict]\n    For further information visit https://errors.example/2/v/missing"
        ),
        "messages Field required",
    ),
    ('boom\nTraceback (most recent call last):\n  File "x.py", line 1', "boom"),
    ("x" * 500, "x" * 399 + "…"),
]


@pytest.mark.parametrize(("said", "shown"), LEAKS)
def test_scrubbing(said, shown):
    body = json.dumps({"error": {"message": said, "type": "InternalServerError", "param": None, "code": 500}})
    assert ENGINES["vllm"].failure(500, "application/json", body.encode()).message == shown


def test_quoted_input_in_a_validation_error_is_dropped():
    entry = {
        "type": "string_type",
        "loc": ("body", "messages", 0, "content"),
        "msg": 'Input "it\'s" bad',
        "input": "SECRET",
    }
    body = json.dumps(
        {"object": "error", "message": f"1 validation error:\n  {entry}", "type": "Bad Request", "code": 400}
    )
    failure = ENGINES["sglang"].failure(400, "application/json", body.encode())
    assert failure.param == "messages.0.content"
    assert "SECRET" not in failure.message


CONTEXT = [
    (
        "This model's maximum context length is 4096 tokens. However, your prompt contains 5000 input tokens",
        (5000, 4096),
    ),
    (
        (
            "This model's maximum context length is 4096 tokens. However, your prompt contains 90000 characters (more "
            "than 65536 characters, which is the upper bound for 4096 input tokens)."
        ),
        (4097, 4096),
    ),
    ("The decoder prompt (length 5000) is longer than the maximum model length of 4096.", (5000, 4096)),
    (
        (
            "This model's maximum context length is 4096 tokens. However, you requested 5014 tokens (14 in the "
            "messages, 5000 in the completion). Please reduce the length of the messages or completion."
        ),
        (14, 5000, 4096),
    ),
    (
        (
            "You passed 30 input tokens and requested 4090 output tokens. However, the model's context length is only "
            "4096 tokens, resulting in a maximum input length of 6 tokens."
        ),
        (30, 4090, 4096),
    ),
]


@pytest.mark.parametrize(("said", "numbers"), CONTEXT)
@pytest.mark.parametrize("engine", ["vllm", "sglang", "nim"])
def test_context_length_with_its_numbers(engine, said, numbers):
    body = json.dumps({"object": "error", "message": said, "type": "BadRequestError", "param": None, "code": 400})
    failure = ENGINES[engine].failure(400, "application/json", body.encode())
    assert (failure.fault, failure.code, failure.numbers) == (Fault.CLIENT, "context_length_exceeded", numbers)


@pytest.mark.parametrize(
    ("status", "fault"),
    [
        (400, Fault.CLIENT),
        (408, Fault.TIMEOUT),
        (413, Fault.CLIENT),
        (422, Fault.CLIENT),
        (429, Fault.OVERLOADED),
        (500, Fault.ENGINE),
        (502, Fault.ENGINE),
        (503, Fault.OVERLOADED),
        (504, Fault.TIMEOUT),
    ],
)
@pytest.mark.parametrize("engine", ["vllm", "sglang", "nim"])
def test_a_proxys_page_tells_only_its_status(engine, status, fault):
    failure = ENGINES[engine].failure(status, "text/html; charset=utf-8", b"<html>nginx at 10.0.0.1</html>")
    assert (failure.fault, failure.status) == (fault, status)
    assert failure.message == f"the engine answered {status} (text/html)"


def test_fastapis_own_422():
    body = b'{"detail":[{"type":"missing","loc":["body","messages"],"msg":"Field required","input":{"q":"secret"}}]}'
    failure = ENGINES["sglang"].failure(422, "application/json", body)
    assert (failure.fault, failure.param, failure.message) == (Fault.CLIENT, "messages", "messages: Field required")


@pytest.mark.parametrize(
    ("header", "want"),
    [("", None), ("2", 2.0), (" 1.5 ", 1.5), ("86400", 3600.0), ("Tue, 01 Dec 2026 03:47:20 GMT", None), ("-1", None)],
)
def test_retry_after(header, want):
    body = b'{"error":{"message":"busy","type":"Service Unavailable","param":null,"code":503}}'
    assert ENGINES["vllm"].failure(503, "application/json", body, header).retry_after_s == want
    assert ENGINES["vllm"].failure(503, "text/plain", b"busy", header).retry_after_s == want


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b'"x"', b"{}", b'{"error":null}', b"\xff\xfe", b'{"error":7}', b"[" * 9999]
)
@pytest.mark.parametrize("engine", ["vllm", "sglang", "nim"])
def test_any_body_yields_a_failure(engine, body):
    failure = ENGINES[engine].failure(500, "application/json", body)
    assert (failure.fault, failure.status) == (Fault.ENGINE, 500)
    assert failure.message
