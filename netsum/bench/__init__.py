"""Comparisons with Gloo: what `netsum bench` runs."""
