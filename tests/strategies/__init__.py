"""Strategies of training compared on small tasks, in virtual time; ``python -m tests.strategies --help``."""
