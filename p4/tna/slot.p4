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

#if TREE
// A RESULT of the parent must know in the access to the bitmap whether it is the first one: there the collective says so.
// Operations end below it, and it is added to theirs.
const bit<32> COLLECTIVE_FINAL = 4;
#define IS_COLLECTIVE(held) held == collective || held - collective == COLLECTIVE_FINAL
#define BITS bits
#define NOT_ASKED _, _,
#define HAS_ROOM meta.admission.room != 0
#define FIRST_MARK found.with_lanes
#else
#define IS_COLLECTIVE(held) held == collective
#define BITS meta.admission.worker_bit
#define NOT_ASKED _,
#define HAS_ROOM (meta.admission.room != 0 || is_further_pass)
#define FIRST_MARK first_mark
#endif
#define OF_QUORUM FLAG_QUORUM &&& FLAG_QUORUM

#if TREE
control Slot(inout headers_t hdr, inout metadata_t meta, in bool has_parent, inout bool goes_up) {
    bit<1> rightful = 0; // it is from a child what a child sends, or from the parent what the parent sends
    worker_bitmap_t bits = 0; // the worker's; of a RESULT, those of all
#else
control Slot(inout headers_t hdr, inout metadata_t meta, in quorum_t quorum, in bool is_further_pass) {
    bit<8> first_mark = 0; // what slot_has_lanes holds after the first contribution to a tag
    bit<1> names_members = 0; // the header of a STATUS is filled in already
#endif
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
    bit<8> has_lanes = 0; // of a quorum: 1 more than the number of contributions that were missing, before this one

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
#if TREE
            KIND_RESULT: look_at_tag();
#endif
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
#if TREE
            KIND_RESULT: look_at_chunk();
#endif
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
#if TREE
            (KIND_RESULT, 0): look_at_collective();
#endif
        }
    }

    // It compares the collective for itself: a contribution to something else must leave the bitmap as it is, in this access.
    Register<seen_t, pool_index_t>(CELLS, {0, 0}) slot_seen;

    RegisterAction<seen_t, pool_index_t, worker_bitmap_t>(slot_seen) first_seen = {
        void apply(inout seen_t held) {
            held.seen = BITS;
            held.collective = collective;
        }
    };
    RegisterAction<seen_t, pool_index_t, worker_bitmap_t>(slot_seen) next_seen = {
        void apply(inout seen_t held, out worker_bitmap_t seen) {
            seen = held.seen;
            if (IS_COLLECTIVE(held.collective)) {
                held.seen = held.seen | BITS;
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
#if TREE
    // Puts out the bits if the slot takes the RESULT, and none if it is not full, or final already.
    RegisterAction<seen_t, pool_index_t, worker_bitmap_t>(slot_seen) finished = {
        void apply(inout seen_t held, out worker_bitmap_t seen) {
            if (held.collective == collective && held.seen == bits) {
                seen = held.seen;
                held.collective = held.collective + COLLECTIVE_FINAL;
            } else {
                seen = 0;
            }
        }
    };
#endif

    action see_first() {
        first_seen.execute(meta.admission.index);
    }
    action see_next() {
        found.before = next_seen.execute(meta.admission.index);
    }
    action look_at_seen() {
        found.before = seen_read.execute(meta.admission.index);
    }
#if TREE
    action finish() {
        found.before = finished.execute(meta.admission.index);
    }
#endif

    table slot_seen_step {
        key = {
            hdr.netsum.kind: exact;
            found.newer: exact;
        }
        actions = {
            see_first;
            see_next;
            look_at_seen;
#if TREE
            finish;
#endif
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        const entries = {
            (KIND_CONTRIBUTE, 1): see_first();
            (KIND_CONTRIBUTE, 0): see_next();
            (KIND_PROBE, 0): look_at_seen();
#if TREE
            (KIND_RESULT, 0): finish();
#endif
        }
    }

    // ---- What the lanes write for the first contribution to a tag.

    action set_seed(bit<32> seed) {
        found.seed = (int<32>) seed;
    }

    table lane_seed {
        key = {
#if TREE
            hdr.netsum.kind: ternary;
#endif
            found.newer: exact;
            found.with_lanes: ternary;
            hdr.netsum.op: ternary;
        }
        actions = {
            set_seed;
        }
        const default_action = set_seed(SEED_KEEP);
        const entries = {
#if TREE
            (KIND_RESULT, 0, _, _): set_seed(SEED_PACKET);
#endif
            (ANY_KIND 1, 0, OP_MAX): set_seed(SEED_LOWEST);
            (ANY_KIND 1, _, _): set_seed(SEED_PACKET); // its own lanes, or the zeros of EmptyLanes
        }
    }

    // ---- Whether the slot has lanes (and in a tree, whether it is final), and the exponent. They wait for nothing but the
    // bit of this worker. What a quorum completes has no lanes: there the register counts down what is missing, to 1.

    Register<bit<8>, pool_index_t>(CELLS, 0) slot_has_lanes;

    RegisterAction<bit<8>, pool_index_t, bit<8>>(slot_has_lanes) first_has_lanes = {
        void apply(inout bit<8> held, out bit<8> now) {
            held = FIRST_MARK;
            now = held;
        }
    };
    RegisterAction<bit<8>, pool_index_t, bit<8>>(slot_has_lanes) next_has_lanes = {
        void apply(inout bit<8> held, out bit<8> now) {
            held = held | FIRST_MARK;
            now = held;
        }
    };
    RegisterAction<bit<8>, pool_index_t, bit<8>>(slot_has_lanes) has_lanes_read = {
        void apply(inout bit<8> held, out bit<8> now) {
            now = held;
        }
    };
#if TREE
    RegisterAction<bit<8>, pool_index_t, bit<8>>(slot_has_lanes) final_has_lanes = {
        void apply(inout bit<8> held, out bit<8> now) {
            held = found.with_lanes | MARK_FINAL;
            now = held;
        }
    };
#endif
#if QUORUM
    RegisterAction<bit<8>, pool_index_t, bit<8>>(slot_has_lanes) one_less_missing = {
        void apply(inout bit<8> held, out bit<8> now) {
            now = held;
            if (held > 1) {
                held = held - 1;
            }
        }
    };
#endif

    action take_has_lanes() {
        has_lanes = first_has_lanes.execute(meta.admission.index);
    }
    action add_has_lanes() {
        has_lanes = next_has_lanes.execute(meta.admission.index);
    }
    action read_has_lanes() {
        has_lanes = has_lanes_read.execute(meta.admission.index);
    }
#if TREE
    action mark_final() {
        has_lanes = final_has_lanes.execute(meta.admission.index);
    }
#endif
#if QUORUM
    action count_down() {
        has_lanes = one_less_missing.execute(meta.admission.index);
    }
#endif

    table slot_has_lanes_step {
        key = {
#if TREE
            hdr.netsum.kind: ternary;
            asks_the_same: ternary;
#else
            hdr.netsum.flags: ternary;
#endif
            found.agrees: exact;
            found.newer: ternary;
            mine: ternary;
        }
        actions = {
            take_has_lanes;
            add_has_lanes;
            read_has_lanes;
#if TREE
            mark_final;
#endif
#if QUORUM
            count_down;
#endif
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        const entries = {
#if TREE
            (KIND_PROBE, 1, 0, _, _): read_has_lanes();
            (KIND_RESULT, 1, 0, _, 0): read_has_lanes();
            (KIND_RESULT, 1, 0, _, _): mark_final();
#endif
#if QUORUM
            (OF_QUORUM, 1, 0, 0): count_down();
#endif
            (NOT_ASKED 1, 1, _): take_has_lanes();
            (NOT_ASKED 1, 0, 0): add_has_lanes();
            (NOT_ASKED 1, 0, _): read_has_lanes();
        }
    }

    // The packet leaves with what its slot holds. A PROBE keeps its own, which is its number.
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
        hdr.netsum.exponent = first_exponent.execute(meta.admission.index);
    }
    action max_exponent() {
        hdr.netsum.exponent = larger_exponent.execute(meta.admission.index);
    }
    action read_exponent() {
        hdr.netsum.exponent = exponent_read.execute(meta.admission.index);
    }

    table slot_exponent_step {
        key = {
#if TREE
            hdr.netsum.kind: ternary;
            asks_the_same: ternary;
#else
            hdr.netsum.flags: ternary;
            has_lanes: ternary;
#endif
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
#if TREE
            (KIND_RESULT, 1, 0, _, 0): read_exponent();
            (KIND_RESULT, 1, 0, _, _): take_exponent();
#endif
#if QUORUM
            (OF_QUORUM, 1, 1, 0, _): read_exponent(); // nothing is missing
#endif
            (_, _, 1, 1, _): take_exponent();
            (_, _, 1, 0, 0): max_exponent();
            (_, _, 1, 0, _): read_exponent();
        }
    }

#if QUORUM
    // ---- Whose contributions a slot has that a quorum completes. slot_seen has the bits of those that were late, too.

    Register<bit<32>, pool_index_t>(CELLS, 0) slot_members;

    RegisterAction<bit<32>, pool_index_t, bit<32>>(slot_members) first_member = {
        void apply(inout bit<32> held, out bit<32> now) {
            held = meta.admission.worker_bit;
            now = held;
        }
    };
    RegisterAction<bit<32>, pool_index_t, bit<32>>(slot_members) next_member = {
        void apply(inout bit<32> held, out bit<32> now) {
            held = held | meta.admission.worker_bit;
            now = held;
        }
    };
    RegisterAction<bit<32>, pool_index_t, bit<32>>(slot_members) members_read = {
        void apply(inout bit<32> held, out bit<32> now) {
            now = held;
        }
    };

    @hidden action name_them() {
        hdr.status.slot_chunk = hdr.netsum.chunk;
        names_members = 1;
    }

    action take_member() {
        hdr.status.seen = first_member.execute(meta.admission.index);
        name_them();
    }
    action add_member() {
        hdr.status.seen = next_member.execute(meta.admission.index);
        name_them();
    }
    action read_members() {
        hdr.status.seen = members_read.execute(meta.admission.index);
        name_them();
    }

    table slot_members_step {
        key = {
            hdr.netsum.flags: ternary;
            asks_the_same: ternary;
            found.agrees: ternary;
            found.newer: ternary;
            has_lanes: ternary;
            mine: ternary;
        }
        actions = {
            take_member;
            add_member;
            read_members;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        const entries = {
            (OF_QUORUM, 1, _, _, _, _): read_members(); // a PROBE
            (OF_QUORUM, _, 1, 1, _, _): take_member();
            (OF_QUORUM, _, 1, 0, 1, _): read_members(); // nothing was missing
            (OF_QUORUM, _, 1, 0, _, 0): add_member();
            (OF_QUORUM, _, 1, 0, _, _): read_members();
        }
    }
#endif

    // ---- What became of the packet: the first row that fits. Which headers an answer has is decided with it.

    @hidden action note_bits() {
        mine = found.before & BITS; // in a tree, of a RESULT: not 0 if the slot takes it
        after = found.before | BITS;
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

#if TREE
#include "tree_outcome.p4"
#else
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
            hdr.netsum.flags: ternary;
            quorum.workers: ternary;
        }
        actions = {
            drop_after;
            answer_result;
            answer_result_without_lanes;
            answer_status;
        }
        const default_action = drop_after(OUTCOME_MALFORMED);
        const entries = {
            (false, _, _, _, _, _, _, _, _, _, _, _, _): drop_after(OUTCOME_MALFORMED);
            (true, false, _, _, _, _, _, _, _, _, _, _, _): drop_after(OUTCOME_NOT_ADMITTED);
            (true, true, 0, _, _, _, _, _, _, _, _, _, _): drop_after(OUTCOME_OUT_OF_RANGE);
            (true, true, 1, _, _, _, _, _, _, _, _, OF_QUORUM, 0): drop_after(OUTCOME_NOT_ADMITTED);
            (true, true, 1, KIND_PROBE, 1, 0, 0, _, _, _, _, _, _): answer_status(OUTCOME_MISMATCH);
            (true, true, 1, KIND_PROBE, _, _, _, _, _, _, _, _, _): answer_status(OUTCOME_PROBED);
            (true, true, 1, _, 0, _, _, _, _, _, _, _, _): drop_after(OUTCOME_STALE);
            (true, true, 1, _, 1, _, _, 0, _, _, _, _, _): answer_status(OUTCOME_MISMATCH);
            // A quorum's: `has_lanes` counts what was missing, from 2 on. Its RESULT has the header of a STATUS.
            (true, true, 1, _, 1, 1, _, 1, _, 1, _, OF_QUORUM, _): answer_status(OUTCOME_COMPLETED);
            (true, true, 1, _, 1, 1, _, 1, _, _, _, OF_QUORUM, _): drop_after(OUTCOME_ADDED);
            (true, true, 1, _, 1, 0, _, 1, _, 1, 0, OF_QUORUM, _): answer_status(OUTCOME_LATE);
            (true, true, 1, _, 1, 0, _, 1, _, 2, 0, OF_QUORUM, _): answer_status(OUTCOME_COMPLETED);
            (true, true, 1, _, 1, 0, _, 1, _, _, 0, OF_QUORUM, _): drop_after(OUTCOME_ADDED);
            (true, true, 1, _, 1, 0, _, 1, _, 1, _, OF_QUORUM, _): answer_status(OUTCOME_DUPLICATE_ANSWERED);
            (true, true, 1, _, 1, 0, _, 1, _, _, _, OF_QUORUM, _): drop_after(OUTCOME_DUPLICATE_DROPPED);
            (true, true, 1, _, 1, _, _, 1, 0, _, 0, _, _): drop_after(OUTCOME_ADDED);
            (true, true, 1, _, 1, _, _, 1, 0, _, _, _, _): drop_after(OUTCOME_DUPLICATE_DROPPED);
            (true, true, 1, _, 1, _, _, 1, 1, 0, 0, _, _): answer_result_without_lanes(OUTCOME_COMPLETED);
            (true, true, 1, _, 1, _, _, 1, 1, _, 0, _, _): answer_result(OUTCOME_COMPLETED);
            (true, true, 1, _, 1, _, _, 1, 1, 0, _, _, _): answer_result_without_lanes(OUTCOME_DUPLICATE_ANSWERED);
            (true, true, 1, _, 1, _, _, 1, 1, _, _, _, _): answer_result(OUTCOME_DUPLICATE_ANSWERED);
        }
    }
#endif

    apply {
        if (hdr.lanes.isValid()) {
            found.with_lanes = 1;
        }
#if QUORUM
        if (hdr.lanes.isValid()) {
            first_mark = 1;
        } else if (hdr.netsum.flags & FLAG_QUORUM != 0) {
            first_mark = quorum.workers;
        }
#endif
#if TREE
        collective = collective_hash.get({ hdr.netsum.fingerprint, hdr.netsum.op });
#else
        collective = collective_hash.get({ hdr.netsum.flags[2:2], hdr.netsum.op, hdr.netsum.fingerprint }); // whether for a quorum, too
#endif

#if TREE
        if (meta.well_formed && meta.admission.admitted &&
            ((meta.admission.worker_bit != 0 && (hdr.netsum.kind == KIND_CONTRIBUTE || hdr.netsum.kind == KIND_PROBE)) ||
             (meta.admission.worker_bit == 0 && (hdr.netsum.kind == KIND_RESULT || hdr.netsum.kind == KIND_STATUS)))) {
        rightful = 1;
        if (hdr.netsum.kind == KIND_RESULT) {
            bits = meta.admission.full_mask;
        } else {
            bits = meta.admission.worker_bit;
        }
#endif
        // The last comparison holds whatever the controller wrote.
        if (meta.well_formed && meta.admission.admitted && HAS_ROOM &&
            (meta.admission.index & BEYOND_POOL) == 0) {
            reached = 1;
#if QUORUM
            if (hdr.netsum.flags & FLAG_QUORUM == 0 || quorum.workers != 0) {
#endif
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
#if QUORUM
            }
#endif
        }
#if TREE
        }
#endif

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
#if QUORUM
        slot_members_step.apply(); // what it writes into needs the header, if there is to be one
#endif

#if TREE
        // The parent's stays as it is.
        if (hdr.status.isValid() && hdr.netsum.kind != KIND_STATUS) {
#else
        if (hdr.status.isValid() && names_members == 0) {
#endif
            if (found.newer == 1) {
                hdr.status.seen = 0;
                hdr.status.slot_chunk = hdr.netsum.chunk;
            } else {
                hdr.status.seen = found.before;
                hdr.status.slot_chunk = (bit<32>) held_chunk;
            }
        }
    }
}
