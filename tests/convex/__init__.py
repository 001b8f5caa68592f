"""Compressed differences on convex finite sums: problems, gradient estimators, and the theorems' step sizes.

A method of the literature is a combination: DIANA is full gradients with memory ``diana``; VR-DIANA is L-SVRG or SAGA with it;
ISEGA is full gradients, ``random-k-independent`` and ``diana``; independent block gradient descent and ISGD are full or
sampled gradients with ``random-k-independent`` and no memory.
"""
