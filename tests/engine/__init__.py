"""The embedded switch and the same program by hand in C, without a network: ``python -m tests.engine``."""
