"""P4Runtime's messages and service in Python, generated from the specification's own definitions (version 1.4.1).

`proto` holds the definitions as p4lang and Google publish them, `generate_stubs` makes the modules beside it. They import
with protobuf 3.20 and with current versions, and beside any other stubs of P4Runtime in the same process: the message types
live in a descriptor pool of their own (`host_agent.p4rt.pool`).
"""
