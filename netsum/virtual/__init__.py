"""Trainings in virtual time: all workers in this process, over a network whose times come from the simulator.

Needs PyTorch, except for `netsum.virtual.timeline`, `netsum.virtual.round_clock` and `netsum.virtual.network`.
"""
