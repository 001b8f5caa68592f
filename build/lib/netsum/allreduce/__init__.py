"""An all-reduce between hosts, timed and checked bit for bit: `netsum allreduce`, and what benchmarks build on.

`plan` says what is reduced, `inputs` which numbers and what must come out, `measurement` times and checks one rank's part,
`worker` is a rank as a process, `launch` runs one on every host, `report` puts together what they said.
"""
