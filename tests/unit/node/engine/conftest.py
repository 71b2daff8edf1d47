"""How hypothesis runs here: a slow machine is no failure, and a failing example says its seed."""

from hypothesis import settings

settings.register_profile("engine", deadline=None, print_blob=True)
settings.load_profile("engine")
