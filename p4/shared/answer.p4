// Makes the RESULT or STATUS out of the packet that caused it, from the switch's own address. Whom each copy goes to is
// written in egress (copy_rewrite.p4).

control Answer(inout headers_t hdr, inout metadata_t meta) {
    @hidden action set_kind(bit<4> kind, bit<8> flags, bit<16> udp_bytes) {
        hdr.netsum.kind = kind;
        hdr.netsum.flags = flags;
        hdr.udp.bytes = udp_bytes;
        hdr.ipv4.total_bytes = udp_bytes + IPV4_BYTES;
    }

    apply {
        // Each way sets everything once: in a pipeline, setting something again takes a stage more.
        if (hdr.status.isValid()) {
            hdr.lanes.setInvalid();
            if (meta.outcome == OUTCOME_MISMATCH) {
                set_kind(KIND_STATUS, FLAG_MISMATCH, UDP_BYTES + NETSUM_HEADER_BYTES + STATUS_HEADER_BYTES);
#ifdef QUORUM_WITHOUT_LANES
            } else if (hdr.netsum.kind == KIND_CONTRIBUTE) {
                // The slot of a quorum: the answer names its contributors.
                set_kind(KIND_RESULT, 0, UDP_BYTES + NETSUM_HEADER_BYTES + STATUS_HEADER_BYTES);
#endif
            } else {
                set_kind(KIND_STATUS, 0, UDP_BYTES + NETSUM_HEADER_BYTES + STATUS_HEADER_BYTES);
            }
        } else if (hdr.lanes.isValid()) {
            set_kind(KIND_RESULT, FLAG_LANES, UDP_BYTES + NETSUM_HEADER_BYTES + ALL_LANES_BYTES);
        } else {
            set_kind(KIND_RESULT, 0, UDP_BYTES + NETSUM_HEADER_BYTES);
        }
        hdr.netsum.num_workers = meta.admission.num_workers;
        hdr.netsum.level = 0;

        hdr.udp.src_port = NETSUM_UDP_PORT;
        hdr.udp.checksum = 0;
        hdr.ipv4.src = hdr.ipv4.dst;
        hdr.ipv4.tos = hdr.ipv4.tos & ECT_0;
        hdr.ipv4.identification = 0;
        hdr.ipv4.reserved = 0;
        hdr.ipv4.dont_fragment = 1;
        hdr.ipv4.ttl = INITIAL_TTL;
        hdr.ethernet.src = meta.own_mac;
        meta.ipv4_is_new = true;

        // A RESULT that all workers wait for goes to all; an answer to one worker's packet goes to that worker.
        if (meta.outcome == OUTCOME_COMPLETED || meta.outcome == OUTCOME_MISMATCH) {
            meta.mcast_group = meta.admission.mcast_group;
            meta.send = SEND_TO_GROUP;
        } else {
            meta.egress_port = meta.ingress_port;
            meta.send = SEND_TO_PORT;
        }
    }
}
