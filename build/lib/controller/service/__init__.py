"""The controller as a service: hosts join jobs over it, operators look after them, and its memory outlives it.

`serve` runs it, `client` talks to it. How it is made:

========== ===============================================================================================
network    the switches and hosts it has, as a testbed's folder names them; `network_file` for a TOML file
store      what must not be forgotten, in SQLite
records    one job as it is kept
link       one switch: connecting, connecting again, becoming primary
desk       the jobs: which there are, how one ends
workers    what workers ask: seats, attaching again, leaving
operators  what operators ask: making, restarting and ending jobs
restoring  the jobs of the controller before this one
wishes     what is asked for, held against what there is
dispatch   what jobs hold on which switch, and how it comes there
rpc        the job API in front of these
metrics    Prometheus
========== ===============================================================================================
"""
