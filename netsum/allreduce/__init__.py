"""An all-reduce between hosts, timed and checked bit for bit: `netsum allreduce`, and the base of benchmarks.

`plan` has the arrays and operations, `inputs` the numbers and expected results, `measurement` times and checks one rank's part,
`worker` is a rank as a process, `launch` runs one on every host, `report` combines their messages.
"""
