"""What all tests share."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# How long an example takes says nothing on a busy machine; a failing one prints how to replay it.
settings.register_profile(
    "kvorum", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("kvorum")
