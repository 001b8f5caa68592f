"""Compressed differences on convex finite sums: problems, gradient estimators, and the theorems' step sizes.

A method of the literature is a combination: DIANA is full gradients with memory ``diana``; VR-DIANA is L-SVRG or SAGA with it;
ISEGA is full gradients, ``random-k-independent`` and ``diana``; independent block gradient descent and ISGD are full or
sampled gradients with ``random-k-independent`` and no memory.
"""

from host_agent.compression.convex.minimize import Progress, minimize
from host_agent.compression.convex.problems import LogisticRegression, Problem, Ridge, heterogeneous

__all__ = ["LogisticRegression", "Problem", "Progress", "Ridge", "heterogeneous", "minimize"]
