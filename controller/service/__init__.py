"""The controller as a service: hosts join jobs over it, operators look after them, and its memory outlives it.

`serve` runs it, `client` talks to it. How it is made:

========== ===============================================================================================
network    the switches and hosts it has, from a testbed's folder or a TOML file
store      what must not be forgotten, in SQLite
records    one job as it is kept
link       one switch: connecting, connecting again, becoming primary
desk       who may join what, who has left, when a job ends
wishes     what is asked for, held against what there is
dispatch   what jobs hold on which switch, and how it comes there
rpc        the job API in front of the desk
metrics    Prometheus
========== ===============================================================================================
"""
