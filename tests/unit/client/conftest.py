"""Property tests here have no deadline: how fast a machine is decides nothing."""

from hypothesis import settings

settings.register_profile("untimed", deadline=None, max_examples=60)
settings.load_profile("untimed")
