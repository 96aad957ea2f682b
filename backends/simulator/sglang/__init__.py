"""The SGLang and NIM flavours of the simulated server."""
