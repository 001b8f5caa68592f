// TNA's own names, hidden from p4/shared: parsers and deparsers, ports, drop and multicast, and the metadata that a packet takes
// from ingress to egress.

parser TargetParser(packet_in packet, out target_headers_t hdr, out metadata_t meta,
                    out ingress_intrinsic_metadata_t intrinsic) {
    ArrivingParser() arriving;

    state start {
        packet.extract(intrinsic);
        packet.advance(PORT_METADATA_SIZE);
        arriving.apply(packet, hdr, meta, intrinsic.ingress_port);
        transition accept;
    }
}

control TargetDeparser(packet_out packet, inout target_headers_t hdr, in metadata_t meta,
                       in ingress_intrinsic_metadata_for_deparser_t intrinsic) {
    LeavingDeparser() leaving;

    apply {
        leaving.apply(packet, hdr);
    }
}

// Only as far as something is changed: lanes and all the rest are payload.
parser TargetEgressParser(packet_in packet, out target_headers_t hdr, out egress_metadata_t meta,
                          out egress_intrinsic_metadata_t intrinsic) {
    AnswerParser() answer;
    CopyParser() copy;

    state start {
        packet.extract(intrinsic);
        packet.extract(hdr.bridge);
        transition select(hdr.bridge.leaving) {
            LEAVING_NEW_IPV4: parse_ipv4;
            LEAVING_ANSWER_TO_ONE: parse_answer;
            LEAVING_ANSWER_TO_GROUP: parse_answer;
            LEAVING_ANSWER_TO_ONE_OF_GROUP: parse_answer;
            LEAVING_LANES_TO_GROUP: parse_copy;
            default: accept;
        }
    }

    state parse_ipv4 {
        packet.extract(hdr.frame.ethernet);
        packet.extract(hdr.frame.ipv4);
        transition accept;
    }

    state parse_answer {
        answer.apply(packet, hdr.frame);
        transition accept;
    }

    state parse_copy {
        packet.extract(hdr.copies);
        copy.apply(packet, hdr.frame, hdr.copies.header_only, intrinsic.egress_rid, meta);
        transition accept;
    }
}

control TargetEgressDeparser(packet_out packet, inout target_headers_t hdr, in egress_metadata_t meta,
                             in egress_intrinsic_metadata_for_deparser_t intrinsic) {
    Checksum() ipv4_checksum;

    apply {
        // Egress sees the IPv4 header of those packets only whose checksum is to be computed.
        if (hdr.frame.ipv4.isValid()) {
            hdr.frame.ipv4.checksum = ipv4_checksum.update({
                hdr.frame.ipv4.version, hdr.frame.ipv4.ihl, hdr.frame.ipv4.tos, hdr.frame.ipv4.total_bytes,
                hdr.frame.ipv4.identification, hdr.frame.ipv4.reserved, hdr.frame.ipv4.dont_fragment,
                hdr.frame.ipv4.more_fragments, hdr.frame.ipv4.fragment_offset, hdr.frame.ipv4.ttl,
                hdr.frame.ipv4.protocol, hdr.frame.ipv4.src, hdr.frame.ipv4.dst
            });
        }
        packet.emit(hdr.frame.packet_in);
        packet.emit(hdr.frame.ethernet);
        packet.emit(hdr.frame.ipv4);
        packet.emit(hdr.frame.udp);
        packet.emit(hdr.frame.netsum);
    }
}

// The hardware tests the checksum of an IPv4 header without options only; a frame that ends too early has an error.
control ArriveFromTarget(in headers_t hdr, inout metadata_t meta,
                         in ingress_intrinsic_metadata_from_parser_t from_parser) {
    apply {
        if (meta.ipv4_checksum_wrong || from_parser.parser_err != 0) {
            meta.well_formed = false; // no options, or it would not be
        }
        if (hdr.ipv4.ihl != 5) {
            meta.ipv4_checksum_wrong = false;
        }
    }
}

control LeaveToTarget(inout target_headers_t hdr, in metadata_t meta, in worker_bitmap_t header_only,
                      inout ingress_intrinsic_metadata_for_deparser_t for_deparser,
                      inout ingress_intrinsic_metadata_for_tm_t for_tm) {
    action to_port(bit<8> leaving) {
        for_tm.ucast_egress_port = meta.egress_port;
        hdr.bridge.setValid();
        hdr.bridge.leaving = leaving;
        hdr.bridge.ingress_port = meta.ingress_port;
    }

    action to_group(bit<8> leaving) {
        for_tm.mcast_grp_a = meta.mcast_group;
        hdr.bridge.setValid();
        hdr.bridge.leaving = leaving;
        hdr.bridge.ingress_port = meta.ingress_port;
    }

    action lanes_to_group() {
        for_tm.mcast_grp_a = meta.mcast_group;
        hdr.bridge.setValid();
        hdr.bridge.leaving = LEAVING_LANES_TO_GROUP;
        hdr.bridge.ingress_port = meta.ingress_port;
        hdr.copies.setValid();
        hdr.copies.header_only = header_only;
    }

    action to_nowhere() {
        for_deparser.drop_ctl = 1;
    }

    // One table: all of it fits into the stage of the last lanes.
    table way_out {
        key = {
            meta.send: ternary;
            meta.is_answer: ternary;
            meta.ipv4_is_new: ternary;
            hdr.frame.lanes.isValid(): ternary @name("has_lanes");
        }
        actions = {
            to_port;
            to_group;
            lanes_to_group;
            @defaultonly to_nowhere;
        }
        const default_action = to_nowhere();
        const entries = {
            (SEND_TO_PORT, true, _, _): to_port(LEAVING_ANSWER_TO_ONE);
            (SEND_TO_PORT, _, true, _): to_port(LEAVING_NEW_IPV4);
            (SEND_TO_PORT, _, _, _): to_port(LEAVING_AS_IT_IS);
            (SEND_TO_GROUP, _, _, true): lanes_to_group();
            (SEND_TO_GROUP, _, _, _): to_group(LEAVING_ANSWER_TO_GROUP);
            (SEND_TO_ONE_OF_GROUP, true, _, _): to_group(LEAVING_ANSWER_TO_ONE_OF_GROUP);
            (SEND_TO_OTHERS, _, _, _): to_group(LEAVING_TO_OTHERS);
        }
    }

    apply {
        way_out.apply();
    }
}
