"""The vLLM flavour of the simulated server."""
