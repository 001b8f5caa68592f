"""Alternatives to netsum for an all-reduce, in the same network: timing models, each from its paper's description.

A peer is a function of a file of its own, in `sim.peers.table`: given a `Group` of hosts and for each worker the messages
after which it may begin, it writes down messages that wait for each other, and returns for each worker those after which it is
done. No values are added: a model has the times and places of bytes.
"""
