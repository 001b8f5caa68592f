"""Blocks of arrays to 32-bit lanes in network byte order, and back; one file per codec, all in `table`.

A codec writes straight into the datagram that leaves and reads straight from the datagram that arrived. A record
(`payload.PAYLOAD`) describes the array to the codec, and the core reaches the codec through addresses in that record: the core
holds no list of codecs, and a new codec is a new file and its line in the table.
"""
