"""The control plane: jobs, slots, admission and forwarding of a netsum switch over P4Runtime.

`controller.switch_controller` and `controller.service` need gRPC; the pure parts, such as `controller.slots` and
`controller.entries`, do not.
"""
