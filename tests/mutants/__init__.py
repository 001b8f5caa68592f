"""Mutants that are drawn, not chosen, of every part of netsum, and the nets that find them: ``python -m tests.mutants``."""
