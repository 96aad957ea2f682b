"""Decisions: routing, admission, retry, contract enforcement. Pure: no sockets, no event loop, no wall clock."""
