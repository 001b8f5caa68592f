"""What several of netsum's packages share: machine code, gRPC channels, P4Runtime's messages. It imports none of them."""
