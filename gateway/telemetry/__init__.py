"""What the gateway tells of its exchanges: records, spans, metrics, log lines."""
