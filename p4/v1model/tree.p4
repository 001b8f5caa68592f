// A switch in a tree of switches: what only v1model has so (shared/tree.p4 has the rest).

// The parser of a switch that may have a parent: a RESULT or STATUS is well-formed too, and so is a packet for the slot of
// a quorum or from a worker that needs no lanes of the RESULT. Lengths are exact.
parser TreeParser(packet_in packet, out headers_t hdr, inout target_metadata_t target, inout standard_metadata_t standard) {
    TargetParser() single;

    state start {
        single.apply(packet, hdr, target, standard);
        transition select(hdr.netsum.isValid(), target.shared.well_formed) {
            (true, false): check_op;
            default: accept;
        }
    }

    state check_op {
        transition select(hdr.netsum.version, hdr.netsum.op) {
            (NETSUM_VERSION, OP_SUM): check_kind;
            (NETSUM_VERSION, OP_MAX): check_kind;
            (NETSUM_VERSION, OP_BOR): check_kind;
            default: accept;
        }
    }

    state check_kind {
        transition select(hdr.netsum.kind, hdr.netsum.quorum, hdr.netsum.flags) {
            (KIND_RESULT, 0, MARKED_OR_NOT(0)): ends_after_header;
            (KIND_RESULT, 0, MARKED_OR_NOT(FLAG_LANES)): ends_after_lanes;
            (KIND_STATUS, _, 0 &&& ~FLAG_MISMATCH): ends_after_status;
            (KIND_CONTRIBUTE, 1, MARKED_OR_NOT(FLAG_LANES)): ends_after_lanes;
            (KIND_CONTRIBUTE, 0, MARKED_OR_NOT(FLAG_HEADER_ONLY)): ends_after_header;
            (KIND_CONTRIBUTE, 0, MARKED_OR_NOT(FLAG_HEADER_ONLY | FLAG_LANES)): ends_after_lanes;
            default: accept;
        }
    }

    state ends_after_header {
        transition select(hdr.udp.bytes, hdr.ipv4.total_bytes) {
            (UDP_BYTES + NETSUM_HEADER_BYTES, IPV4_BYTES + UDP_BYTES + NETSUM_HEADER_BYTES): is_well_formed;
            default: accept;
        }
    }

    state ends_after_lanes {
        transition select(hdr.udp.bytes, hdr.ipv4.total_bytes) {
            (UDP_BYTES + NETSUM_HEADER_BYTES + ALL_LANES_BYTES,
             IPV4_BYTES + UDP_BYTES + NETSUM_HEADER_BYTES + ALL_LANES_BYTES): parse_lanes;
            default: accept;
        }
    }

    state ends_after_status {
        transition select(hdr.udp.bytes, hdr.ipv4.total_bytes) {
            (UDP_BYTES + NETSUM_HEADER_BYTES + STATUS_HEADER_BYTES,
             IPV4_BYTES + UDP_BYTES + NETSUM_HEADER_BYTES + STATUS_HEADER_BYTES): parse_status;
            default: accept;
        }
    }

    state parse_lanes {
        packet.extract(hdr.lanes);
        transition is_well_formed;
    }

    state parse_status {
        packet.extract(hdr.status);
        transition is_well_formed;
    }

    state is_well_formed {
        target.shared.well_formed = true;
        transition accept;
    }
}

// `Answer` with additions for a tree: a RESULT from the parent goes to all children, its STATUS to the
// child that asked (a MISMATCH to all), this switch's own "cannot grow" to all, and a STATUS that answers a PROBE keeps the way back.
control AnswerInTree(inout headers_t hdr, inout metadata_t meta, in quorum_t quorum) {
    Answer() answer;
    NameQuorum() name_quorum;

    apply {
        bit<16> way_back = hdr.ipv4.identification;
        bit<8> flags = hdr.netsum.flags;
        bit<4> level = hdr.netsum.level;
        answer.apply(hdr, meta);
        if (quorum.workers != 0 && hdr.netsum.kind == KIND_RESULT) {
            name_quorum.apply(hdr, quorum);
        }
        if (meta.outcome == OUTCOME_PROBED) {
            hdr.ipv4.identification = way_back;
        } else if (meta.outcome == OUTCOME_RESULT_TAKEN || meta.outcome == OUTCOME_ADDED) {
            // ADDED is answered where the packet cannot grow by the lanes that must go up: all children learn of it.
            meta.mcast_group = meta.admission.mcast_group;
            meta.send = SEND_TO_GROUP;
        } else if (meta.outcome == OUTCOME_STATUS_PASSED_DOWN) {
            meta.mcast_group = meta.admission.mcast_group;
            if (flags & FLAG_MISMATCH != 0) {
                hdr.netsum.flags = FLAG_MISMATCH;
                meta.send = SEND_TO_GROUP;
            } else {
                hdr.netsum.level = level |+| 1;
                hdr.netsum.worker_id = (bit<8>) (way_back & CHILD_MASK);
                hdr.ipv4.identification = way_back >> CHILD_BITS;
                meta.send = SEND_TO_ONE_OF_GROUP;
            }
        }
    }
}
