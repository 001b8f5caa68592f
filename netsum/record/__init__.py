"""`netsum sim record`: a training of the user's own becomes a trace that the simulator runs."""
