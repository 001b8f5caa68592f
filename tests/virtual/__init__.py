"""Trainings in virtual time: all workers in this process, over a network whose times come from the simulator.

Needs PyTorch, except for `tests.virtual.timeline`, `tests.virtual.round_clock` and `tests.virtual.network`.
"""
