"""Blocks of arrays to 32-bit lanes in network byte order, and back; one file per codec, all in `table`.

A codec writes straight into the datagram that leaves and reads straight from the one that came. What it knows of the
array is a record (`payload.PAYLOAD`), and the core reaches it through addresses in that record: the core holds no list
of codecs, and a new one is a new file and its line in the table.
"""
