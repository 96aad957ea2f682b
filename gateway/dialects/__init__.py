"""Codecs between the four dialects and the engines. Sans-IO: bytes in, bytes out; any split gives the same.

Start at `registry`: what a dialect offers and how the pipeline uses it. `base` is the transcoder's contract, `model`
the canonical request, `target` what a codec must know of the pool, `events` the canonical deltas of an answer.
"""
