// Header-only RESULTs, of which the worker needs no lanes: it owns no part of the chunk, or has the chunk's contents.
// docs/protocol.md#header-only-results says why this is safe.

// Cuts the lanes of the copies for such workers. An answer to one worker is no replica: the slot decides about its lanes.
control CutCopy(inout headers_t hdr, in worker_bitmap_t header_only, in bit<16> replica) {
    apply {
        if (replica != 0 && hdr.lanes.isValid()) {
            worker_bitmap_t needs = header_only >> (bit<8>) (replica - 1);
            if (needs[0:0] == 1) {
                hdr.lanes.setInvalid();
                hdr.netsum.flags = hdr.netsum.flags & ~FLAG_LANES;
                hdr.udp.bytes = hdr.udp.bytes - LANES_BYTES;
                hdr.ipv4.total_bytes = hdr.ipv4.total_bytes - LANES_BYTES;
            }
        }
    }
}
