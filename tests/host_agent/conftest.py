from hypothesis import settings

# The first call of a compiled function loads or compiles it.
settings.register_profile("compiled", deadline=None)
settings.load_profile("compiled")
