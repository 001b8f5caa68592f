"""Faults that are put into the P4 program or the worker core, one at a time, to see that the explorer finds them."""
