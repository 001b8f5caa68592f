// More lanes than one pass has room for (-D PASSES=2 and more): the packet goes through ingress again, once for each
// group of lanes, and each pass is the protocol of one pass over cells of its own.
//
// A slot has a cell for each pass: tag, collective, bitmap, exponent, has_lanes and lanes. A CONTRIBUTE adds its first group in
// the first pass and leaves it behind, its second in the second, and so on. A packet that is lost between two passes leaves the
// worker's bit clear in the later cells, and its retransmission adds there and is a duplicate before. Who completes the last
// cell completes all, for each worker's packets come to the cells in their order; it then goes through the passes in reverse,
// as a contribution without lanes that is a duplicate, and takes each group with it: its own tag, collective and bitmap are
// compared in each cell, so it cannot take along the lanes of another chunk.

// In front of a packet between two passes. Only the port for that has such packets, and no cable goes there.
header pass_h {
    bit<8> number; // of the pass to come; the first one, which has no header, is 0
    bit<8> what; // PASS_*
    @padding bit<7> pad;
    port_t ingress_port; // where the packet came from at first
}

struct target_headers_t {
    bridge_h bridge;
    copies_h copies;
    pass_h pass;
    headers_t frame;
}

const bit<8> LAST_PASS = PASSES - 1;
const bit<8> PASS_ADD = 1; // the packet's next lanes are added
const bit<8> PASS_READ_FOR_ALL = 2; // the slot's lanes are put in front of those the packet has; for the job
const bit<8> PASS_READ_FOR_ONE = 3; // the same; for the sender

parser ArrivingParser(packet_in packet, out target_headers_t hdr, inout metadata_t meta, in port_t ingress_port) {
    PacketParser() frame;

    state start {
        transition select(ingress_port) {
            PASS_PORT: parse_pass;
            default: parse_frame;
        }
    }

    // Findings of the first pass.
    state parse_pass {
        packet.extract(hdr.pass);
        meta.ingress_port = hdr.pass.ingress_port;
        packet.extract(hdr.frame.ethernet);
        packet.extract(hdr.frame.ipv4);
        meta.asked_address = hdr.frame.ipv4.dst;
        packet.extract(hdr.frame.udp);
        packet.extract(hdr.frame.netsum);
        meta.well_formed = true;
        transition select(hdr.pass.what, hdr.frame.netsum.flags) {
            (PASS_ADD, MARKED_OR_NOT(FLAG_LANES)): parse_lanes;
            default: accept;
        }
    }

    state parse_lanes {
        packet.extract(hdr.frame.lanes);
        transition accept;
    }

    state parse_frame {
        meta.ingress_port = ingress_port;
        frame.apply(packet, hdr.frame, meta, ingress_port);
        transition accept;
    }
}

control LeavingDeparser(packet_out packet, in target_headers_t hdr) {
    FrameDeparser() frame;

    apply {
        packet.emit(hdr.bridge);
        packet.emit(hdr.copies);
        packet.emit(hdr.pass);
        frame.apply(packet, hdr.frame);
    }
}

// In egress, a copy of a RESULT with lanes: all workers get them.
parser CopyParser(packet_in packet, inout headers_t hdr, in worker_bitmap_t header_only, in bit<16> replica,
                  inout egress_metadata_t meta) {
    AnswerParser() answer;

    state start {
        answer.apply(packet, hdr);
        transition accept;
    }
}

// The packet's way after a pass.
control NextPass(inout pass_h pass, inout headers_t hdr, inout metadata_t meta) {
    action again() {
        pass.setValid();
        pass.ingress_port = meta.ingress_port;
        hdr.status.setInvalid();
        meta.outcome = OUTCOME_NONE;
        meta.is_answer = false;
        meta.egress_port = PASS_PORT;
        meta.send = SEND_TO_PORT;
    }

    action add_in_second() {
        again();
        pass.number = 1;
        pass.what = PASS_ADD;
        hdr.lanes.setInvalid();
        hdr.netsum.pool_index = hdr.netsum.pool_index + (bit<16>) POOL_INDICES;
    }

    action add_in_next() {
        again();
        pass.number = pass.number + 1;
        hdr.lanes.setInvalid();
        hdr.netsum.pool_index = hdr.netsum.pool_index + (bit<16>) POOL_INDICES;
    }

    action read_in_previous(bit<8> to_what) {
        again();
        pass.number = pass.number - 1;
        pass.what = to_what;
        hdr.netsum.pool_index = hdr.netsum.pool_index - (bit<16>) POOL_INDICES;
    }

    action finish() {
        pass.setInvalid();
        hdr.netsum.pool_index = hdr.netsum.pool_index & (bit<16>) (POOL_INDICES - 1);
    }

    action finish_for_all() {
        finish();
        meta.outcome = OUTCOME_COMPLETED;
    }

    action give_up() {
        meta.outcome = OUTCOME_NONE;
        meta.is_answer = false;
        meta.send = SEND_NOWHERE;
    }

    table next_pass {
        key = {
            pass.isValid(): ternary;
            pass.number: ternary;
            pass.what: ternary;
            meta.outcome: ternary;
            hdr.lanes.isValid(): ternary;
        }
        actions = {
            add_in_second;
            add_in_next;
            read_in_previous;
            finish;
            finish_for_all;
            give_up;
            NoAction;
        }
        const default_action = NoAction();
        const entries = {
            // The first: accepted packets and PROBEs go on; all others end here.
            (false, _, _, OUTCOME_ADDED, _): add_in_second();
            (false, _, _, OUTCOME_COMPLETED, _): add_in_second();
            (false, _, _, OUTCOME_DUPLICATE_DROPPED, _): add_in_second();
            (false, _, _, OUTCOME_DUPLICATE_ANSWERED, _): add_in_second();
            (false, _, _, OUTCOME_PROBED, _): add_in_second();
            (false, _, _, _, _): NoAction();
            // The last one that adds: it decides. A slot without lanes is answered at once.
            (true, LAST_PASS, PASS_ADD, OUTCOME_COMPLETED, true): read_in_previous(PASS_READ_FOR_ALL);
            (true, LAST_PASS, PASS_ADD, OUTCOME_DUPLICATE_ANSWERED, true): read_in_previous(PASS_READ_FOR_ONE);
            (true, LAST_PASS, PASS_ADD, _, _): finish();
            // Between them.
            (true, _, PASS_ADD, OUTCOME_ADDED, _): add_in_next();
            (true, _, PASS_ADD, OUTCOME_COMPLETED, _): add_in_next();
            (true, _, PASS_ADD, OUTCOME_DUPLICATE_DROPPED, _): add_in_next();
            (true, _, PASS_ADD, OUTCOME_DUPLICATE_ANSWERED, _): add_in_next();
            (true, _, PASS_ADD, OUTCOME_PROBED, _): add_in_next();
            // Back again. Each cell says for itself that the slot is full of the same chunk and collective.
            (true, 0, PASS_READ_FOR_ALL, OUTCOME_DUPLICATE_ANSWERED, true): finish_for_all();
            (true, 0, PASS_READ_FOR_ONE, OUTCOME_DUPLICATE_ANSWERED, true): finish();
            (true, _, PASS_READ_FOR_ALL, OUTCOME_DUPLICATE_ANSWERED, true): read_in_previous(PASS_READ_FOR_ALL);
            (true, _, PASS_READ_FOR_ONE, OUTCOME_DUPLICATE_ANSWERED, true): read_in_previous(PASS_READ_FOR_ONE);
            (true, _, PASS_ADD, _, _): finish();
            (true, _, _, OUTCOME_STALE, _): finish();
            (true, _, _, _, _): give_up();
        }
    }

    apply {
        next_pass.apply();
    }
}

control Reduction(inout target_headers_t hdr, inout metadata_t meta, in job_t job, inout worker_bitmap_t header_only) {
    Slot() slot;
    NextPass() next_pass;
    Answer() answer;
    OutcomeCounters() counters;
    QuorumCounters() quorum_counters;

    apply {
        slot.apply(hdr.frame, meta, job, hdr.pass.isValid(), header_only);
        // The slot of a quorum has no lanes, so its first pass is its last.
        if (hdr.frame.netsum.quorum == 0) {
            next_pass.apply(hdr.pass, hdr.frame, meta);
        }
        if (meta.is_answer) {
            answer.apply(hdr.frame, meta);
        }
        counters.apply(hdr.frame, meta);
        quorum_counters.apply(hdr.frame, meta);
    }
}
