"""For all tests: examples of property tests take the time that the machine gives them."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("headrace", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("headrace")
