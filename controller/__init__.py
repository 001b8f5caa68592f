"""The control plane: jobs, slots, admission and forwarding of a netsum switch over P4Runtime.

`controller.session` and `controller.service` need gRPC; the pure parts, such as `controller.slots` and
`controller.entries`, do not.
"""
