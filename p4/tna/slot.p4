// The slots. Per pool index: tag (epoch, chunk), collective (op, fingerprint), seen, has_lanes, exponent, lanes.
//
// A register is one memory in one stage, read and written in one go, by one packet after the other; and a later stage sees
// packets in the order of an earlier one. So what a packet finds in all of its registers is what the packets before it
// left there. Each decision below is one such access, and what it puts out decides the next.
//
// A stateful ALU compares two things and puts out one word (Tofino 1): where two words are wanted, two registers hold the
// same and do the same.

// The bits of an index that none inside the registers has: there is a power of two of them.
const pool_index_t BEYOND_POOL = ~((pool_index_t) CELLS - 1);

// Signed, so that comparing a difference of chunks with 0 is comparing modulo 2^32. Both words of a register are of one type.
struct tag_t {
    int<32> epoch;
    int<32> chunk;
}

struct seen_t {
    worker_bitmap_t seen;
    bit<32> collective;
}

control Slot(inout headers_t hdr, inout metadata_t meta, in bool is_further_pass) {
    Hash<bit<32>>(HashAlgorithm_t.IDENTITY) collective_hash;
    Lanes() lanes;
    EmptyLanes() empty_lanes;

    finding_t found = { 0, 0, 0, 0, 0 };
    bit<1> reached = 0; // the packet may touch the slot
    int<32> held_chunk = 0; // the slot's, before
    bit<32> collective = 0; // the packet's
    bit<1> current = 0; // its tag is the slot's, or newer
    bit<1> asks_the_same = 0; // a PROBE for the slot's tag and its collective
    worker_bitmap_t mine = 0; // this worker's bit, if it was set before
    worker_bitmap_t after = 0;
    bit<1> full = 0;
    bit<8> has_lanes = 0;
    bit<16> exponent = 0;

    // ---- The tag. Twice: one says whether it is newer, the other which chunk was there.

    Register<tag_t, pool_index_t>(CELLS, {0, 0}) slot_tag;

    RegisterAction<tag_t, pool_index_t, bit<1>>(slot_tag) tag_taken = {
        void apply(inout tag_t held, out bit<1> is_newer) {
            if (held.epoch != (int<32>) meta.admission.epoch || (int<32>) hdr.netsum.chunk - held.chunk > 0) {
                held.epoch = (int<32>) meta.admission.epoch;
                held.chunk = (int<32>) hdr.netsum.chunk;
                is_newer = 1;
            } else {
                is_newer = 0;
            }
        }
    };
    RegisterAction<tag_t, pool_index_t, bit<1>>(slot_tag) tag_seen = {
        void apply(inout tag_t held, out bit<1> is_other_epoch) {
            if (held.epoch != (int<32>) meta.admission.epoch) {
                is_other_epoch = 1;
            } else {
                is_other_epoch = 0;
            }
        }
    };

    action take_tag() {
        found.newer = tag_taken.execute(meta.admission.index);
    }
    action look_at_tag() {
        found.newer = tag_seen.execute(meta.admission.index);
    }

    table slot_tag_step {
        key = {
            hdr.netsum.kind: exact;
        }
        actions = {
            take_tag;
            look_at_tag;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        const entries = {
            KIND_CONTRIBUTE: take_tag();
            KIND_PROBE: look_at_tag();
        }
    }

    Register<tag_t, pool_index_t>(CELLS, {0, 0}) slot_chunk;

    RegisterAction<tag_t, pool_index_t, int<32>>(slot_chunk) chunk_taken = {
        void apply(inout tag_t held, out int<32> chunk) {
            chunk = held.chunk;
            if (held.epoch != (int<32>) meta.admission.epoch || (int<32>) hdr.netsum.chunk - held.chunk > 0) {
                held.epoch = (int<32>) meta.admission.epoch;
                held.chunk = (int<32>) hdr.netsum.chunk;
            }
        }
    };
    RegisterAction<tag_t, pool_index_t, int<32>>(slot_chunk) chunk_seen = {
        void apply(inout tag_t held, out int<32> chunk) {
            chunk = held.chunk;
        }
    };

    action take_chunk() {
        held_chunk = chunk_taken.execute(meta.admission.index);
    }
    action look_at_chunk() {
        held_chunk = chunk_seen.execute(meta.admission.index);
    }

    table slot_chunk_step {
        key = {
            hdr.netsum.kind: exact;
        }
        actions = {
            take_chunk;
            look_at_chunk;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        const entries = {
            KIND_CONTRIBUTE: take_chunk();
            KIND_PROBE: look_at_chunk();
        }
    }

    // ---- The collective and the bitmap. Only for a packet whose tag is the slot's, or for a PROBE.

    Register<bit<32>, pool_index_t>(CELLS, 0) slot_collective;

    RegisterAction<bit<32>, pool_index_t, bit<1>>(slot_collective) collective_taken = {
        void apply(inout bit<32> held, out bit<1> is_same) {
            held = collective;
            is_same = 1;
        }
    };
    RegisterAction<bit<32>, pool_index_t, bit<1>>(slot_collective) collective_compared = {
        void apply(inout bit<32> held, out bit<1> is_same) {
            if (held == collective) {
                is_same = 1;
            } else {
                is_same = 0;
                held = COLLECTIVE_DISPUTED;
            }
        }
    };
    RegisterAction<bit<32>, pool_index_t, bit<1>>(slot_collective) collective_seen = {
        void apply(inout bit<32> held, out bit<1> is_same) {
            if (held == collective) {
                is_same = 1;
            } else {
                is_same = 0;
            }
        }
    };

    action take_collective() {
        found.agrees = collective_taken.execute(meta.admission.index);
    }
    action compare_collective() {
        found.agrees = collective_compared.execute(meta.admission.index);
    }
    action look_at_collective() {
        asks_the_same = collective_seen.execute(meta.admission.index);
    }

    table slot_collective_step {
        key = {
            hdr.netsum.kind: exact;
            found.newer: exact;
        }
        actions = {
            take_collective;
            compare_collective;
            look_at_collective;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        const entries = {
            (KIND_CONTRIBUTE, 1): take_collective();
            (KIND_CONTRIBUTE, 0): compare_collective();
            (KIND_PROBE, 0): look_at_collective();
        }
    }

    // It compares the collective for itself: a contribution to something else must leave the bitmap as it is, in this access.
    Register<seen_t, pool_index_t>(CELLS, {0, 0}) slot_seen;

    RegisterAction<seen_t, pool_index_t, worker_bitmap_t>(slot_seen) first_seen = {
        void apply(inout seen_t held) {
            held.seen = meta.admission.worker_bit;
            held.collective = collective;
        }
    };
    RegisterAction<seen_t, pool_index_t, worker_bitmap_t>(slot_seen) next_seen = {
        void apply(inout seen_t held, out worker_bitmap_t seen) {
            seen = held.seen;
            if (held.collective == collective) {
                held.seen = held.seen | meta.admission.worker_bit;
            } else {
                held.collective = COLLECTIVE_DISPUTED;
            }
        }
    };
    RegisterAction<seen_t, pool_index_t, worker_bitmap_t>(slot_seen) seen_read = {
        void apply(inout seen_t held, out worker_bitmap_t seen) {
            seen = held.seen;
        }
    };

    action see_first() {
        first_seen.execute(meta.admission.index);
    }
    action see_next() {
        found.before = next_seen.execute(meta.admission.index);
    }
    action look_at_seen() {
        found.before = seen_read.execute(meta.admission.index);
    }

    table slot_seen_step {
        key = {
            hdr.netsum.kind: exact;
            found.newer: exact;
        }
        actions = {
            see_first;
            see_next;
            look_at_seen;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        const entries = {
            (KIND_CONTRIBUTE, 1): see_first();
            (KIND_CONTRIBUTE, 0): see_next();
            (KIND_PROBE, 0): look_at_seen();
        }
    }

    // ---- What the lanes write for the first contribution to a tag.

    action set_seed(bit<32> seed) {
        found.seed = (int<32>) seed;
    }

    table lane_seed {
        key = {
            found.newer: exact;
            found.with_lanes: ternary;
            hdr.netsum.op: ternary;
        }
        actions = {
            set_seed;
        }
        const default_action = set_seed(SEED_KEEP);
        const entries = {
            (1, 0, OP_MAX): set_seed(SEED_LOWEST);
            (1, _, _): set_seed(SEED_PACKET); // its own lanes, or the zeros of EmptyLanes
        }
    }

    // ---- Whether the slot has lanes, and the exponent. They wait for nothing but the bit of this worker.

    Register<bit<8>, pool_index_t>(CELLS, 0) slot_has_lanes;

    RegisterAction<bit<8>, pool_index_t, bit<8>>(slot_has_lanes) first_has_lanes = {
        void apply(inout bit<8> held, out bit<8> now) {
            held = found.with_lanes;
            now = held;
        }
    };
    RegisterAction<bit<8>, pool_index_t, bit<8>>(slot_has_lanes) next_has_lanes = {
        void apply(inout bit<8> held, out bit<8> now) {
            held = held | found.with_lanes;
            now = held;
        }
    };
    RegisterAction<bit<8>, pool_index_t, bit<8>>(slot_has_lanes) has_lanes_read = {
        void apply(inout bit<8> held, out bit<8> now) {
            now = held;
        }
    };

    action take_has_lanes() {
        has_lanes = first_has_lanes.execute(meta.admission.index);
    }
    action add_has_lanes() {
        has_lanes = next_has_lanes.execute(meta.admission.index);
    }
    action read_has_lanes() {
        has_lanes = has_lanes_read.execute(meta.admission.index);
    }

    table slot_has_lanes_step {
        key = {
            found.agrees: exact;
            found.newer: ternary;
            mine: ternary;
        }
        actions = {
            take_has_lanes;
            add_has_lanes;
            read_has_lanes;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        const entries = {
            (1, 1, _): take_has_lanes();
            (1, 0, 0): add_has_lanes();
            (1, 0, _): read_has_lanes();
        }
    }

    Register<bit<16>, pool_index_t>(CELLS, 0) slot_exponent;

    RegisterAction<bit<16>, pool_index_t, bit<16>>(slot_exponent) first_exponent = {
        void apply(inout bit<16> held, out bit<16> now) {
            held = hdr.netsum.exponent;
            now = held;
        }
    };
    RegisterAction<bit<16>, pool_index_t, bit<16>>(slot_exponent) larger_exponent = {
        void apply(inout bit<16> held, out bit<16> now) {
            held = max(held, hdr.netsum.exponent);
            now = held;
        }
    };
    RegisterAction<bit<16>, pool_index_t, bit<16>>(slot_exponent) exponent_read = {
        void apply(inout bit<16> held, out bit<16> now) {
            now = held;
        }
    };

    action take_exponent() {
        exponent = first_exponent.execute(meta.admission.index);
    }
    action max_exponent() {
        exponent = larger_exponent.execute(meta.admission.index);
    }
    action read_exponent() {
        exponent = exponent_read.execute(meta.admission.index);
    }

    table slot_exponent_step {
        key = {
            found.agrees: exact;
            found.newer: ternary;
            mine: ternary;
        }
        actions = {
            take_exponent;
            max_exponent;
            read_exponent;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        const entries = {
            (1, 1, _): take_exponent();
            (1, 0, 0): max_exponent();
            (1, 0, _): read_exponent();
        }
    }

    // ---- What became of the packet: the first row that fits. Which headers an answer has is decided with it.

    @hidden action note_bits() {
        mine = found.before & meta.admission.worker_bit;
        after = found.before | meta.admission.worker_bit;
    }

    action drop_after(outcome_t outcome) {
        meta.outcome = outcome;
    }

    action answer_result(outcome_t outcome) {
        meta.outcome = outcome;
        meta.is_answer = true;
    }

    action answer_result_without_lanes(outcome_t outcome) {
        meta.outcome = outcome;
        meta.is_answer = true;
        hdr.lanes.setInvalid();
    }

    action answer_status(outcome_t outcome) {
        meta.outcome = outcome;
        meta.is_answer = true;
        hdr.status.setValid();
    }

    table slot_outcome {
        key = {
            meta.well_formed: ternary;
            meta.admission.admitted: ternary;
            reached: ternary;
            hdr.netsum.kind: ternary;
            current: ternary;
            found.newer: ternary;
            asks_the_same: ternary;
            found.agrees: ternary;
            full: ternary;
            has_lanes: ternary;
            mine: ternary;
        }
        actions = {
            drop_after;
            answer_result;
            answer_result_without_lanes;
            answer_status;
        }
        const default_action = drop_after(OUTCOME_MALFORMED);
        const entries = {
            (false, _, _, _, _, _, _, _, _, _, _): drop_after(OUTCOME_MALFORMED);
            (true, false, _, _, _, _, _, _, _, _, _): drop_after(OUTCOME_NOT_ADMITTED);
            (true, true, 0, _, _, _, _, _, _, _, _): drop_after(OUTCOME_OUT_OF_RANGE);
            (true, true, 1, KIND_PROBE, 1, 0, 0, _, _, _, _): answer_status(OUTCOME_MISMATCH);
            (true, true, 1, KIND_PROBE, _, _, _, _, _, _, _): answer_status(OUTCOME_PROBED);
            (true, true, 1, _, 0, _, _, _, _, _, _): drop_after(OUTCOME_STALE);
            (true, true, 1, _, 1, _, _, 0, _, _, _): answer_status(OUTCOME_MISMATCH);
            (true, true, 1, _, 1, _, _, 1, 0, _, 0): drop_after(OUTCOME_ADDED);
            (true, true, 1, _, 1, _, _, 1, 0, _, _): drop_after(OUTCOME_DUPLICATE_DROPPED);
            (true, true, 1, _, 1, _, _, 1, 1, 0, 0): answer_result_without_lanes(OUTCOME_COMPLETED);
            (true, true, 1, _, 1, _, _, 1, 1, _, 0): answer_result(OUTCOME_COMPLETED);
            (true, true, 1, _, 1, _, _, 1, 1, 0, _): answer_result_without_lanes(OUTCOME_DUPLICATE_ANSWERED);
            (true, true, 1, _, 1, _, _, 1, 1, _, _): answer_result(OUTCOME_DUPLICATE_ANSWERED);
        }
    }

    apply {
        if (hdr.lanes.isValid()) {
            found.with_lanes = 1;
        }
        collective = collective_hash.get({ hdr.netsum.op, hdr.netsum.fingerprint });

        // The last comparison holds whatever the controller wrote.
        if (meta.well_formed && meta.admission.admitted && (meta.admission.room != 0 || is_further_pass) &&
            (meta.admission.index & BEYOND_POOL) == 0) {
            reached = 1;
            slot_tag_step.apply();
            slot_chunk_step.apply();
            if (found.with_lanes == 0) {
                empty_lanes.apply(hdr.lanes); // neutral ones: from here on all packets have lanes
            }
            if (found.newer == 1 || held_chunk == (int<32>) hdr.netsum.chunk) {
                current = 1;
                slot_collective_step.apply();
            }
            if (found.newer == 1 || held_chunk == (int<32>) hdr.netsum.chunk || hdr.netsum.kind == KIND_PROBE) {
                slot_seen_step.apply();
            }
        }

        // Lanes and all the rest wait for the bitmap, but not for each other.
        lane_seed.apply();
        lanes.apply(hdr.lanes, hdr.netsum, meta.admission.index, found);

        note_bits();
        if (after == meta.admission.full_mask) {
            full = 1;
        }
        slot_has_lanes_step.apply();
        slot_exponent_step.apply();
        slot_outcome.apply();

        // The lanes are in the packet now, whoever brought them.
        if (hdr.status.isValid()) {
            if (found.newer == 1) {
                hdr.status.seen = 0;
                hdr.status.slot_chunk = hdr.netsum.chunk;
            } else {
                hdr.status.seen = found.before;
                hdr.status.slot_chunk = (bit<32>) held_chunk;
            }
        } else if (meta.is_answer) {
            hdr.netsum.exponent = exponent;
        }
    }
}
