"""Responses that outlive their exchange: stored, continued, read again, cancelled, run in the background."""
