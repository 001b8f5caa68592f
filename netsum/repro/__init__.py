"""`netsum repro`: a training run several times under other conditions, its gradients and weights compared step by step."""
