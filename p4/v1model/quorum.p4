// The slot of a quorum, as v1model has it (shared/quorum.p4 has the rest).

// Counts the workers of a bitmap, by pairs, nibbles and bytes.
control CountWorkers(in worker_bitmap_t workers, out bit<8> count) {
    apply {
        bit<32> sums = workers - ((workers >> 1) & 0x55555555);
        sums = (sums & 0x33333333) + ((sums >> 2) & 0x33333333);
        sums = (sums + (sums >> 4)) & 0x0F0F0F0F;
        sums = sums + (sums >> 8);
        sums = sums + (sums >> 16);
        count = (bit<8>) sums & 0x3F;
    }
}

// Writes behind the header of a RESULT whose contributions are in it.
control NameQuorum(inout headers_t hdr, in quorum_t quorum) {
    apply {
        hdr.udp.bytes = hdr.udp.bytes + STATUS_HEADER_BYTES;
        hdr.ipv4.total_bytes = hdr.ipv4.total_bytes + STATUS_HEADER_BYTES;
        hdr.status.setValid();
        hdr.status.seen = quorum.added;
        hdr.status.slot_chunk = hdr.netsum.chunk;
    }
}
