"""The controller as a service: workers join its jobs, operators manage the jobs, and its state survives a restart.

`serve` runs the service, `client` calls it. The first line of every module states the module's purpose.
"""
