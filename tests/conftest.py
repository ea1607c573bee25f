"""What all tests share: quiet, reproducible hypothesis settings."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "coterie", deadline=None, derandomize=True, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("coterie")
