"""What holds for every test: Hypothesis never judges by the clock (house style: timing is measured in benchmarks only)."""

from hypothesis import HealthCheck, settings

settings.register_profile("dbsp", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("dbsp")
