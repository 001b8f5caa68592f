"""The controller as a service: workers join its jobs, operators manage the jobs, and its state survives a restart.

`serve` runs the service, `client` calls it.
"""
