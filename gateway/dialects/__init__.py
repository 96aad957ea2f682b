"""Codecs between the four dialects and the engines. Sans-IO: bytes in, bytes out; any split gives the same."""
