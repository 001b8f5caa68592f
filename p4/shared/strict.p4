// Is a packet for the switch's netsum port exactly what the protocol says? Every other one is malformed.
//
// The checksum of UDP is not looked at: Linux leaves it unfinished between virtual interfaces.

control StrictFormat(in headers_t hdr, inout metadata_t meta) {
    apply {
        bit<16> udp_bytes = UDP_BYTES + NETSUM_HEADER_BYTES;
        if (hdr.lanes.isValid()) {
            udp_bytes = UDP_BYTES + NETSUM_HEADER_BYTES + LANE_COUNT * LANE_BYTES;
        }
        bit<16> ipv4_bytes = udp_bytes + IPV4_BYTES;
        bool sizes = hdr.udp.bytes == udp_bytes && hdr.ipv4.total_bytes == ipv4_bytes &&
            meta.frame_bytes == (bit<32>) (ipv4_bytes + ETHERNET_BYTES);
        bool asks = (hdr.netsum.kind == KIND_CONTRIBUTE && (hdr.netsum.flags == 0 || hdr.lanes.isValid())) ||
            (hdr.netsum.kind == KIND_PROBE && hdr.netsum.flags == 0);
        bool op = hdr.netsum.op == OP_SUM || hdr.netsum.op == OP_MAX || hdr.netsum.op == OP_BOR;
        if (hdr.netsum.isValid() && hdr.netsum.version == NETSUM_VERSION && sizes && asks && op &&
            !meta.ipv4_checksum_wrong) {
            meta.outcome = OUTCOME_ADMITTED;
        } else {
            meta.outcome = OUTCOME_MALFORMED;
        }
    }
}
