"""What is compiled of a network: its events, and what they do to links, switches, workers and flows."""
