"""The HTTP edge: listeners, auth, dialects, the exchange pipeline, admin API, telemetry, command line."""
