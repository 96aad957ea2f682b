"""Token ids of chats. The tokenizer is a small byte-level one made here; real ones are tried in tests/engine."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from tiering.tokens import JOINT, ChatTemplate, ChatTokenizer, UntokenizableError

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


class Clock:
    def monotonic(self) -> float:
        return 0.0

    def time(self) -> float:
        return 1_700_000_000.0


@functools.cache
def encoder(*, special: bool = True) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(["user assistant system hello world water turbine river"] * 3, trainer)
    if special:
        tokenizer.add_special_tokens([AddedToken("<|im_start|>", special=True), AddedToken("<|im_end|>", special=True)])
    return tokenizer


def template(source: str = CHATML, **constants: str) -> ChatTemplate:
    return ChatTemplate(source, Clock(), **constants)


def whole(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False).ids


CONTENT = st.text(alphabet=st.one_of(st.characters(codec="utf-8"), st.sampled_from(" \n\t<|>")), max_size=60)


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["user", "assistant", "system"]), CONTENT), max_size=5))
def test_pieces_give_the_ids_of_the_whole(turns: list[tuple[str, str]]) -> None:
    plain = encoder()
    chat = ChatTokenizer(plain, template())
    messages = [{"role": role, "content": content} for role, content in turns]
    assert chat._special is not None
    for _ in range(2):  # the second time from the memo
        assert chat.chat(messages).tolist() == whole(plain, template().render(messages))


def test_a_further_turn_encodes_its_new_text_only() -> None:
    class Counting:
        def __init__(self) -> None:
            self.inner = encoder()
            self.seen: list[str] = []

        def encode(self, sequence: str, *, add_special_tokens: bool) -> object:
            self.seen.append(sequence)
            return self.inner.encode(sequence, add_special_tokens=add_special_tokens)

        def __getattr__(self, name: str) -> object:
            return getattr(self.inner, name)

    counting = Counting()
    chat = ChatTokenizer(counting, template())
    turns = [{"role": "user", "content": "hello " * 50}]
    chat.chat(turns)
    counting.seen.clear()
    chat.chat([*turns, {"role": "assistant", "content": "world"}, {"role": "user", "content": "more"}])
    assert sum(map(len, counting.seen)) < 60


def test_a_tokenizer_whose_pieces_differ_is_used_on_the_whole() -> None:
    strict = Tokenizer.from_str(encoder(special=False).to_str())
    strict.add_special_tokens([AddedToken("<|im_start|>", special=True, rstrip=True)])
    chat = ChatTokenizer(strict, template())
    assert chat._special is None
    text = "<|im_start|>  user hello"
    assert chat.encode(text).tolist() == whole(strict, text)


def test_parts_and_tool_calls_are_handed_to_the_template_as_engines_do() -> None:
    source = "{% for m in messages %}{{ m.content }};{% for c in m.tool_calls or [] %}{{ c.function.arguments.x }}{% endfor %}{% endfor %}"  # noqa: E501
    rendered = template(source).render(
        [
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
            {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": '{"x": 7}'}}]},
        ]
    )
    assert rendered == "a\nb;;7"
    parts = [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]
    assert ChatTemplate(source, Clock(), joint=JOINT["sglang"]).render(parts) == "a b;"


def test_variables_and_constants_reach_the_template() -> None:
    source = "{{ bos_token }}{{ tools | tojson }}{{ enable_thinking }}{{ strftime_now('%Y') }}"
    rendered = template(source, bos_token="<s>").render([], tools=[{"name": "ö"}], enable_thinking=False)
    assert rendered == '<s>[{"name": "ö"}]False2023'


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}],
        [{"role": "assistant", "content": "", "tool_calls": [{"function": {"arguments": "{no json"}}]}],
        [{"role": "user"}],
    ],
)
def test_what_cannot_be_tokenised_is_said(messages: list[dict]) -> None:
    with pytest.raises(UntokenizableError):
        template().render(messages)


@pytest.mark.parametrize(
    "source",
    [
        "{{ raise_exception('no') }}",
        "{{ ''.__class__.__mro__ }}{{ 1 / 0 }}",
        "{{ messages.append(1) }}",
        "{{ cycler.__init__.__globals__.os.system('true') }}",
    ],
)
def test_templates_run_in_a_sandbox(source: str) -> None:
    with pytest.raises(UntokenizableError):
        template(source).render([])


def test_ids_of_the_same_tokenizer_agree_and_others_do_not() -> None:
    chat = ChatTokenizer(encoder(), template())
    ids = chat.encode("<|im_start|>user\nhello world water turbine river, once more").tolist()
    assert chat.agrees(ids)
    letters = [encoder().token_to_id(letter) for letter in "hellohellohello"]
    assert not chat.agrees(letters)
    assert not chat.agrees([2**40, *ids])


@pytest.mark.parametrize(
    ("tokenizer", "source"), [("{}", CHATML), (None, "{% for message in messages %}"), (None, None)]
)
def test_files_that_cannot_be_used_are_a_value_error(tmp_path: Path, tokenizer: str | None, source: str | None) -> None:
    (tmp_path / "tokenizer.json").write_text(tokenizer or encoder().to_str())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": source}))
    with pytest.raises(ValueError, match=tmp_path.name):
        ChatTokenizer.load(tmp_path, Clock())
