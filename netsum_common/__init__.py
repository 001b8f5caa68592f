"""Shared parts of netsum's packages: machine code, gRPC channels, P4Runtime's messages. It imports none of the packages."""
