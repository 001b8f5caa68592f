"""The controller as a service: hosts join its jobs, operators manage them, and its state survives a restart.

`serve` runs it, `client` calls it. The first line of every module says what it is for.
"""
