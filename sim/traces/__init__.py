"""Traces of trainings: readers of their formats, and the graph of computing and communication that all become."""
