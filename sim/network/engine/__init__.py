"""The compiled part of a network: events, and their effects on links, switches, workers and flows."""
