// A switch in a tree of switches. Towards its parent it is one worker; whether a job has a parent here is a matter of
// one table entry, so the same program is leaf, inner switch and root. docs/protocol.md#trees-of-switches says why this is safe.

const outcome_t OUTCOME_DUPLICATE_PASSED_UP = 11; // added before, and the parent has not answered yet
const outcome_t OUTCOME_RESULT_TAKEN = 12; // the parent's RESULT is in the slot now
const outcome_t OUTCOME_STATUS_PASSED_DOWN = 13;

// For an answer: to the one worker of the group that is named in the header.
const send_t SEND_TO_ONE_OF_GROUP = SEND_TO_OTHERS;

// Bits of the slot's register of marks.
const bit<8> MARK_LANES = 1; // a contribution had lanes
const bit<8> MARK_FINAL = 2; // the slot holds the parent's RESULT
const bit<8> MARK_CONGESTED = 4; // a queue has marked a contribution; only v1model has room for it

struct parent_t {
    bool present;
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
    WAY_UP_UNIT

    @hidden action carry(bit<8> flags, bit<16> udp_bytes) {
        hdr.netsum.flags = flags;
        hdr.udp.bytes = udp_bytes;
        hdr.ipv4.total_bytes = udp_bytes + IPV4_BYTES;
    }

    apply {
        if (hdr.netsum.kind == KIND_PROBE) {
            hdr.ipv4.identification = WAY_UP(hdr.ipv4.identification, hdr.netsum.worker_id);
        } else {
            hdr.ipv4.identification = 0;
        }
        if (hdr.lanes.isValid()) {
            carry(FLAG_LANES, UDP_BYTES + NETSUM_HEADER_BYTES + ALL_LANES_BYTES);
        } else {
            carry(0, UDP_BYTES + NETSUM_HEADER_BYTES);
        }
        hdr.netsum.worker_id = parent.worker_id;
        hdr.netsum.num_workers = 0;

        hdr.udp.src_port = NETSUM_UDP_PORT;
        hdr.udp.dst_port = NETSUM_UDP_PORT;
        hdr.udp.checksum = 0;
        hdr.ipv4.src = hdr.ipv4.dst;
        hdr.ipv4.dst = parent.ip;
        hdr.ipv4.tos = hdr.ipv4.tos & ECT_0;
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

control TreeCounters(in headers_t hdr, in metadata_t meta, in bool goes_up) {
    JOB_COUNTER(passed_up) // slots whose sum went to the parent
    JOB_COUNTER(duplicates_passed_up)
    JOB_COUNTER(probes_passed_up)
    JOB_COUNTER(results_taken) // from the parent
    JOB_COUNTER(statuses_passed_down)

    apply {
        job_index_t job = (job_index_t) hdr.netsum.job_id; // The packet was admitted, so there are counters for its job.
        // No `else`, as in counters.p4.
        if (goes_up && meta.outcome == OUTCOME_ADDED) {
            passed_up.count(job);
        }
        if (meta.outcome == OUTCOME_DUPLICATE_PASSED_UP) {
            duplicates_passed_up.count(job);
        }
        if (goes_up && meta.outcome == OUTCOME_PROBED) {
            probes_passed_up.count(job);
        }
        if (meta.outcome == OUTCOME_RESULT_TAKEN) {
            results_taken.count(job);
        }
        if (meta.outcome == OUTCOME_STATUS_PASSED_DOWN) {
            statuses_passed_down.count(job);
        }
    }
}
