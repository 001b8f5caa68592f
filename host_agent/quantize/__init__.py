"""Numbers to 32-bit lanes in network byte order, and back.

Block floating point for sums of floats, order-preserving integers for their minimum and maximum, halves for int32
sums that might not fit. Every function works on one block, writes straight into a datagram, and is compiled.
"""
