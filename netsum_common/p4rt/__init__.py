"""P4Runtime's messages and service in Python, generated from the published definitions (version 1.4.1).

`tests.p4runtime_stubs` makes the modules from the descriptors in the packages of p4lang and Google. They import
with protobuf 3.20 and with current versions, and beside any other stubs of P4Runtime in the same process: the message types
live in a descriptor pool of their own (`netsum_common.p4rt.pool`).
"""
