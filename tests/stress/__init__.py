"""Runs that try to break the gateway: chaos, fuzz, soak. Each ends with a line PASS or FAIL."""
