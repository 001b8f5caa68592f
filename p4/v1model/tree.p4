// A switch in a tree of switches. Towards its parent it is one worker; whether a job has a parent here is a matter of
// one table entry, so the same program is leaf, inner switch and root. docs/protocol.md#trees says why this is safe.

const outcome_t OUTCOME_DUPLICATE_PASSED_UP = 11; // added before, and the parent has not answered yet
const outcome_t OUTCOME_RESULT_TAKEN = 12; // the parent's RESULT is in the slot now
const outcome_t OUTCOME_STATUS_PASSED_DOWN = 13;

// Of an answer: to the one worker of the group that is named in the header.
const send_t SEND_TO_ONE_OF_GROUP = SEND_TO_OTHERS;

// What the slot's register of marks holds.
const bit<8> MARK_LANES = 1; // a contribution had lanes
const bit<8> MARK_FINAL = 2; // what it holds is the parent's RESULT

// The parser of a switch that may have a parent: a RESULT or STATUS is well-formed too, with exact lengths. So is what is for
// the slot of a quorum.
parser TreeParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    TargetParser() single;

    state start {
        single.apply(packet, hdr, meta, standard);
        transition select(hdr.netsum.isValid(), meta.well_formed) {
            (true, false): has_other_kind_or_flags;
            default: accept;
        }
    }

    state has_other_kind_or_flags {
        transition select(hdr.netsum.version, hdr.netsum.kind, hdr.netsum.op, hdr.netsum.flags, hdr.udp.bytes,
                          hdr.ipv4.total_bytes) {
            (NETSUM_VERSION, KIND_RESULT, OP_SUM, 0, UDP_BYTES + NETSUM_HEADER_BYTES,
             IPV4_BYTES + UDP_BYTES + NETSUM_HEADER_BYTES): is_well_formed;
            (NETSUM_VERSION, KIND_RESULT, OP_MAX, 0, UDP_BYTES + NETSUM_HEADER_BYTES,
             IPV4_BYTES + UDP_BYTES + NETSUM_HEADER_BYTES): is_well_formed;
            (NETSUM_VERSION, KIND_RESULT, OP_BOR, 0, UDP_BYTES + NETSUM_HEADER_BYTES,
             IPV4_BYTES + UDP_BYTES + NETSUM_HEADER_BYTES): is_well_formed;
            (NETSUM_VERSION, KIND_RESULT, OP_SUM, FLAG_LANES, UDP_BYTES + NETSUM_HEADER_BYTES + ALL_LANES_BYTES,
             IPV4_BYTES + UDP_BYTES + NETSUM_HEADER_BYTES + ALL_LANES_BYTES): parse_lanes;
            (NETSUM_VERSION, KIND_RESULT, OP_MAX, FLAG_LANES, UDP_BYTES + NETSUM_HEADER_BYTES + ALL_LANES_BYTES,
             IPV4_BYTES + UDP_BYTES + NETSUM_HEADER_BYTES + ALL_LANES_BYTES): parse_lanes;
            (NETSUM_VERSION, KIND_RESULT, OP_BOR, FLAG_LANES, UDP_BYTES + NETSUM_HEADER_BYTES + ALL_LANES_BYTES,
             IPV4_BYTES + UDP_BYTES + NETSUM_HEADER_BYTES + ALL_LANES_BYTES): parse_lanes;
            (NETSUM_VERSION, KIND_STATUS, OP_SUM, 0 &&& FLAG_LANES, UDP_BYTES + NETSUM_HEADER_BYTES + STATUS_HEADER_BYTES,
             IPV4_BYTES + UDP_BYTES + NETSUM_HEADER_BYTES + STATUS_HEADER_BYTES): parse_status;
            (NETSUM_VERSION, KIND_STATUS, OP_MAX, 0 &&& FLAG_LANES, UDP_BYTES + NETSUM_HEADER_BYTES + STATUS_HEADER_BYTES,
             IPV4_BYTES + UDP_BYTES + NETSUM_HEADER_BYTES + STATUS_HEADER_BYTES): parse_status;
            (NETSUM_VERSION, KIND_STATUS, OP_BOR, 0 &&& FLAG_LANES, UDP_BYTES + NETSUM_HEADER_BYTES + STATUS_HEADER_BYTES,
             IPV4_BYTES + UDP_BYTES + NETSUM_HEADER_BYTES + STATUS_HEADER_BYTES): parse_status;
            (NETSUM_VERSION, KIND_CONTRIBUTE, OP_SUM, FLAG_QUORUM, UDP_BYTES + NETSUM_HEADER_BYTES,
             IPV4_BYTES + UDP_BYTES + NETSUM_HEADER_BYTES): is_well_formed;
            (NETSUM_VERSION, KIND_PROBE, OP_SUM, FLAG_QUORUM, UDP_BYTES + NETSUM_HEADER_BYTES,
             IPV4_BYTES + UDP_BYTES + NETSUM_HEADER_BYTES): is_well_formed;
            (NETSUM_VERSION, KIND_CONTRIBUTE, OP_SUM, FLAG_QUORUM | FLAG_LANES,
             UDP_BYTES + NETSUM_HEADER_BYTES + ALL_LANES_BYTES,
             IPV4_BYTES + UDP_BYTES + NETSUM_HEADER_BYTES + ALL_LANES_BYTES): parse_lanes;
            (NETSUM_VERSION, KIND_CONTRIBUTE, OP_MAX, FLAG_QUORUM, UDP_BYTES + NETSUM_HEADER_BYTES,
             IPV4_BYTES + UDP_BYTES + NETSUM_HEADER_BYTES): is_well_formed;
            (NETSUM_VERSION, KIND_PROBE, OP_MAX, FLAG_QUORUM, UDP_BYTES + NETSUM_HEADER_BYTES,
             IPV4_BYTES + UDP_BYTES + NETSUM_HEADER_BYTES): is_well_formed;
            (NETSUM_VERSION, KIND_CONTRIBUTE, OP_MAX, FLAG_QUORUM | FLAG_LANES,
             UDP_BYTES + NETSUM_HEADER_BYTES + ALL_LANES_BYTES,
             IPV4_BYTES + UDP_BYTES + NETSUM_HEADER_BYTES + ALL_LANES_BYTES): parse_lanes;
            (NETSUM_VERSION, KIND_CONTRIBUTE, OP_BOR, FLAG_QUORUM, UDP_BYTES + NETSUM_HEADER_BYTES,
             IPV4_BYTES + UDP_BYTES + NETSUM_HEADER_BYTES): is_well_formed;
            (NETSUM_VERSION, KIND_PROBE, OP_BOR, FLAG_QUORUM, UDP_BYTES + NETSUM_HEADER_BYTES,
             IPV4_BYTES + UDP_BYTES + NETSUM_HEADER_BYTES): is_well_formed;
            (NETSUM_VERSION, KIND_CONTRIBUTE, OP_BOR, FLAG_QUORUM | FLAG_LANES,
             UDP_BYTES + NETSUM_HEADER_BYTES + ALL_LANES_BYTES,
             IPV4_BYTES + UDP_BYTES + NETSUM_HEADER_BYTES + ALL_LANES_BYTES): parse_lanes;
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
        meta.well_formed = true;
        transition accept;
    }
}

struct parent_t {
    bool present; // the packet goes to the parent
    port_t port;
    mac_t mac;
    ipv4_address_t ip;
    bit<8> worker_id; // this switch's at the parent
}

control Parent(in headers_t hdr, inout parent_t parent) {
    action pass_up(port_t port, mac_t dst_mac, ipv4_address_t dst_ip, bit<8> worker_id) {
        parent.present = true;
        parent.port = port;
        parent.mac = dst_mac;
        parent.ip = dst_ip;
        parent.worker_id = worker_id;
    }

    action is_root() {
        parent.present = false;
    }

    table job_parent {
        key = {
            hdr.netsum.job_id: exact @name("job_id");
        }
        actions = {
            pass_up;
            @defaultonly is_root;
        }
        const default_action = is_root();
        size = 256;
    }

    apply {
        job_parent.apply();
    }
}

// Sends a CONTRIBUTE or PROBE to the parent, as its worker.
control PassUp(inout headers_t hdr, inout metadata_t meta, in parent_t parent) {
    apply {
        bit<16> bytes = UDP_BYTES + NETSUM_HEADER_BYTES;
        if (hdr.netsum.kind == KIND_PROBE) {
            hdr.ipv4.identification = (hdr.ipv4.identification << CHILD_BITS) | (bit<16>) hdr.netsum.worker_id;
        } else {
            hdr.ipv4.identification = 0;
        }
        if (hdr.lanes.isValid()) {
            hdr.netsum.flags = FLAG_LANES;
            bytes = UDP_BYTES + NETSUM_HEADER_BYTES + ALL_LANES_BYTES;
        } else {
            hdr.netsum.flags = 0;
        }
        hdr.netsum.worker_id = parent.worker_id;
        hdr.netsum.num_workers = 0;

        hdr.udp.src_port = NETSUM_UDP_PORT;
        hdr.udp.dst_port = NETSUM_UDP_PORT;
        hdr.udp.bytes = bytes;
        hdr.udp.checksum = 0;
        hdr.ipv4.total_bytes = bytes + IPV4_BYTES;
        hdr.ipv4.src = hdr.ipv4.dst;
        hdr.ipv4.dst = parent.ip;
        hdr.ipv4.tos = 0;
        hdr.ipv4.reserved = 0;
        hdr.ipv4.dont_fragment = 1;
        hdr.ipv4.ttl = INITIAL_TTL;
        hdr.ethernet.src = meta.own_mac;
        hdr.ethernet.dst = parent.mac;
        meta.ipv4_is_new = true;

        meta.egress_port = parent.port;
        meta.send = SEND_TO_PORT;
    }
}

// What `Answer` does, and what only a tree needs of it: a RESULT from the parent goes to all children, its STATUS to the
// child that asked (a MISMATCH to all), and a STATUS that answers a PROBE keeps the way back.
control AnswerInTree(inout headers_t hdr, inout metadata_t meta, in bool to_first_child, in quorum_t quorum) {
    Answer() answer;
    NameQuorum() name_quorum;

    apply {
        bit<16> way_back = hdr.ipv4.identification;
        bit<4> flags = hdr.netsum.flags;
        answer.apply(hdr, meta);
        if (quorum.workers != 0 && hdr.netsum.kind == KIND_RESULT) {
            name_quorum.apply(hdr, quorum);
        }
        if (meta.outcome == OUTCOME_PROBED) {
            hdr.ipv4.identification = way_back;
        } else if (meta.outcome == OUTCOME_RESULT_TAKEN) {
            meta.mcast_group = meta.admission.mcast_group;
            meta.send = SEND_TO_GROUP;
        } else if (meta.outcome == OUTCOME_STATUS_PASSED_DOWN) {
            meta.mcast_group = meta.admission.mcast_group;
            if (flags & FLAG_MISMATCH != 0) {
                hdr.netsum.flags = FLAG_MISMATCH;
                meta.send = SEND_TO_GROUP;
            } else {
                hdr.netsum.flags = (flags & FLAGS_LEVEL) + FLAGS_ONE_LEVEL;
                hdr.netsum.worker_id = (bit<8>) (way_back & CHILD_MASK);
                hdr.ipv4.identification = way_back >> CHILD_BITS;
                meta.send = SEND_TO_ONE_OF_GROUP;
            }
        }
        if (to_first_child) {
            hdr.netsum.worker_id = 0;
            meta.mcast_group = meta.admission.mcast_group;
            meta.send = SEND_TO_ONE_OF_GROUP;
        }
    }
}

control TreeCounters(in headers_t hdr, in metadata_t meta, in parent_t parent) {
    JOB_COUNTER(passed_up) // slots whose sum went to the parent
    JOB_COUNTER(duplicates_passed_up)
    JOB_COUNTER(probes_passed_up)
    JOB_COUNTER(results_taken) // from the parent
    JOB_COUNTER(statuses_passed_down)

    apply {
        job_index_t job = (job_index_t) hdr.netsum.job_id; // It was admitted, so the counters have a place for it.
        if (parent.present) {
            if (meta.outcome == OUTCOME_ADDED) {
                passed_up.count(job);
            } else if (meta.outcome == OUTCOME_PROBED) {
                probes_passed_up.count(job);
            } else {
                duplicates_passed_up.count(job);
            }
        } else if (meta.outcome == OUTCOME_RESULT_TAKEN) {
            results_taken.count(job);
        } else if (meta.outcome == OUTCOME_STATUS_PASSED_DOWN) {
            statuses_passed_down.count(job);
        }
    }
}
