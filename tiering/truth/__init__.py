"""Predicted against reported cache hits: accuracy, causes of misses, demotion of pools whose predictions fail."""
