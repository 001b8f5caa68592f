"""The worker's side of the slot protocol, without I/O: no clock, no socket, no thread, no random source.

State is in NumPy records, functions over it are compiled, time comes in as an argument. See `core` for how it is
driven.
"""
