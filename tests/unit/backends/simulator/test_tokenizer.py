"""The tokenizer is reversible and stable under appending."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from backends.simulator.tokenizer import Tokenizer, content_text

TOKENIZER = Tokenizer()
TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=200)


@given(TEXT)
def test_text_comes_back(text: str) -> None:
    tokens = TOKENIZER.encode(text)
    assert TOKENIZER.decode(tokens) == text
    assert all(0 <= token < 2**25 for token in tokens)


@given(TEXT)
def test_pieces_are_the_tokens_and_the_text(text: str) -> None:
    pieces = TOKENIZER.pieces(text)
    assert [token for token, _ in pieces] == TOKENIZER.encode(text)
    assert "".join(shown for _, shown in pieces) == text


@given(TEXT, TEXT)
def test_a_longer_text_begins_with_the_same_tokens(head: str, tail: str) -> None:
    """Where a line ends, nothing before it changes."""
    part = TOKENIZER.encode(f"{head}a")
    assert TOKENIZER.encode(f"{head}a\n.{tail}")[: len(part)] == part


def test_known_words_are_one_token() -> None:
    assert len(TOKENIZER.encode("the water runs down")) == 4


def test_ids_that_no_text_gives_are_shown_as_replacement() -> None:
    assert TOKENIZER.decode([60_000, -1, 2**24 + 2**17]) == "\ufffd" * 3


def test_turns_of_a_chat_extend_each_other() -> None:
    first = [{"role": "user", "content": "hello"}]
    more = [*first, {"role": "assistant", "content": "water"}, {"role": "user", "content": "again"}]
    one = TOKENIZER.chat(first, [], "max", thinking=False)
    two = TOKENIZER.chat(more, [], "max", thinking=False)
    assert two.startswith(one.removesuffix("<|im_start|>assistant\n"))
    assert one.startswith("<|effort|>max")


def test_content_of_all_kinds() -> None:
    assert content_text("x") == "x"
    assert content_text(None) == ""
    parts = [{"type": "text", "text": "a"}, {"type": "image_url"}, "odd"]
    assert content_text(parts) == "a" + "<|image|>" * 64
