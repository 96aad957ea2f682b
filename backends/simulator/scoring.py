"""Embeddings and rerank scores: stable numbers from the tokens."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from backends.simulator.tokenizer import Tokenizer

_SIZE = 16


def embeddings(body: Mapping[str, Any], tokenizer: Tokenizer, model: str) -> Any:
    """Answer of /v1/embeddings."""
    given = body.get("input")
    texts = given if isinstance(given, list) else [given]
    tokens = [text if isinstance(text, list) else tokenizer.encode(str(text)) for text in texts]
    data = [{"index": i, "object": "embedding", "embedding": _vector(ids)} for i, ids in enumerate(tokens)]
    count = sum(map(len, tokens))
    usage = {"prompt_tokens": count, "total_tokens": count, "completion_tokens": 0, "prompt_tokens_details": None}
    return {"id": "embd-0", "object": "list", "created": 0, "model": model, "data": data, "usage": usage}


def rerank(body: Mapping[str, Any], tokenizer: Tokenizer, model: str) -> Any:
    """Answer of /v1/rerank, best first."""
    query = _vector(tokenizer.encode(str(body.get("query", ""))))
    documents = [str(document) for document in body.get("documents") or ()]
    vectors = [_vector(tokenizer.encode(text)) for text in documents]
    scores = [sum(a * b for a, b in zip(query, vector, strict=True)) for vector in vectors]
    order = sorted(range(len(documents)), key=lambda i: -scores[i])
    results = [{"index": i, "document": {"text": documents[i]}, "relevance_score": scores[i]} for i in order]
    return {"id": "rerank-0", "model": model, "usage": {"total_tokens": 0}, "results": results}


def _vector(tokens: list[int]) -> list[float]:
    values = [0.0] * _SIZE
    for token in tokens:
        values[token % _SIZE] += 1.0
    norm = math.sqrt(sum(value * value for value in values)) or 1.0
    return [value / norm for value in values]
