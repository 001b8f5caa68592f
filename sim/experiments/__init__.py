"""Experiments on the simulated network: files, sweeps, results, reports."""
