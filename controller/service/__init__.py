"""The controller as a service: hosts join its jobs, operators manage them, and its state survives a restart.

`serve` runs it, `client` calls it. Its modules:

========== ===============================================================================================
network    switches and hosts, read from a testbed's folder; `network_file` reads them from a TOML file
store      what must survive a restart, in SQLite
records    one job as the store keeps it
link       the connection to one switch: connecting, reconnecting, becoming primary
states     the states of jobs, seats and links, as tables
events     the event log: every transition of jobs, seats and links
jobs       one job while the service runs it, its seats, its messages to workers
registry   all jobs: find, restart, end
workers    what workers call: join, attach again, leave
operators  what operators call: create, restart and delete jobs
recovery   the jobs of an earlier controller process
requests   validation of what workers and operators ask for
placement  what jobs hold on which switch, in which order they get it, and how it is written there
rpc        the job API over gRPC
metrics    Prometheus
snapshots  what the window shows, once a tick for all viewers
web        the window and the metrics over HTTP
========== ===============================================================================================
"""
