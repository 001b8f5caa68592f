"""Switches and networks in software: the embedded switch engine."""
