// v1model's own names, hidden from p4/shared: ports, drop and multicast, checksums.

// Metadata of a packet, from the parser to egress.
struct target_metadata_t {
    metadata_t shared;
    worker_bitmap_t header_only; // of a RESULT to a group: whose copies are header-only
}

parser TargetParser(packet_in packet, out headers_t hdr, inout target_metadata_t target, inout standard_metadata_t standard) {
    PacketParser() frame;

    state start {
        target.shared.asked_address = 0;
        target.shared.is_request = false;
        target.shared.well_formed = false;
        target.header_only = 0;
        frame.apply(packet, hdr, target.shared, standard.ingress_port);
        transition accept;
    }
}

control TargetDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.packet_in);
        packet.emit(hdr.ethernet);
        packet.emit(hdr.arp);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.icmp);
        packet.emit(hdr.udp);
        packet.emit(hdr.netsum);
        packet.emit(hdr.status);
        packet.emit(hdr.lanes);
    }
}

// A header with options is not summed: packets that the program parses have none, and all others are forwarded unchanged.
control VerifyIpv4(inout headers_t hdr, inout target_metadata_t meta) {
    apply {
        verify_checksum(hdr.ipv4.isValid() && hdr.ipv4.ihl == 5,
            { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.tos, hdr.ipv4.total_bytes, hdr.ipv4.identification,
              hdr.ipv4.reserved, hdr.ipv4.dont_fragment, hdr.ipv4.more_fragments, hdr.ipv4.fragment_offset,
              hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.src, hdr.ipv4.dst },
            hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

control ComputeIpv4(inout headers_t hdr, inout target_metadata_t meta) {
    apply {
        update_checksum(meta.shared.ipv4_is_new,
            { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.tos, hdr.ipv4.total_bytes, hdr.ipv4.identification,
              hdr.ipv4.reserved, hdr.ipv4.dont_fragment, hdr.ipv4.more_fragments, hdr.ipv4.fragment_offset,
              hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.src, hdr.ipv4.dst },
            hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

control ArriveFromTarget(in headers_t hdr, inout metadata_t meta, in standard_metadata_t standard) {
    apply {
        meta.ingress_port = standard.ingress_port;
        meta.ipv4_checksum_wrong = standard.checksum_error == 1;
        if (meta.ipv4_checksum_wrong ||
            standard.packet_length != (bit<32>) ETHERNET_BYTES + (bit<32>) hdr.ipv4.total_bytes) {
            meta.well_formed = false;
        }
        meta.is_own = false;
        meta.outcome = OUTCOME_NONE;
        meta.send = SEND_NOWHERE;
        meta.is_answer = false;
        meta.ipv4_is_new = false;
    }
}

control LeaveToTarget(in metadata_t meta, inout standard_metadata_t standard) {
    apply {
        if (meta.send == SEND_TO_PORT) {
            standard.egress_spec = meta.egress_port;
        } else if (meta.send == SEND_TO_GROUP || meta.send == SEND_TO_OTHERS) {
            standard.mcast_grp = meta.mcast_group;
        } else {
            mark_to_drop(standard);
        }
    }
}
