"""Runs a training under different conditions and compares gradients and weights step by step (`netsum repro`)."""
