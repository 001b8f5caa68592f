// The collective of a slot (operation, fingerprint, whether a quorum completes it) and whose contributions it has. Both change
// only by a packet whose tag is the slot's; a PROBE looks at them.

// A RESULT of the parent must know in the access to the bitmap whether it is the first one: there the collective says so.
// Operations end below it and are the lowest bits, so a collective with it added is no other packet's; and none is
// COLLECTIVE_DISPUTED, whose bit of a quorum is set.
const bit<32> COLLECTIVE_FINAL = 4;

struct seen_t {
    worker_bitmap_t seen;
    bit<32> collective;
}

// `bits` are the worker's; of a RESULT, those of all.
control SlotMembers(in netsum_h netsum, in pool_index_t index, in worker_bitmap_t bits, inout finding_t found) {
    Register<bit<32>, pool_index_t>(CELLS, 0) slot_collective;

    RegisterAction<bit<32>, pool_index_t, bit<1>>(slot_collective) collective_taken = {
        void apply(inout bit<32> held, out bit<1> is_same) {
            held = found.collective;
            is_same = 1;
        }
    };
    RegisterAction<bit<32>, pool_index_t, bit<1>>(slot_collective) collective_compared = {
        void apply(inout bit<32> held, out bit<1> is_same) {
            if (held == found.collective) {
                is_same = 1;
            } else {
                is_same = 0;
                held = COLLECTIVE_DISPUTED;
            }
        }
    };
    RegisterAction<bit<32>, pool_index_t, bit<1>>(slot_collective) collective_seen = {
        void apply(inout bit<32> held, out bit<1> is_same) {
            if (held == found.collective) {
                is_same = 1;
            } else {
                is_same = 0;
            }
        }
    };

    action take_collective() {
        found.agrees = collective_taken.execute(index);
    }
    action compare_collective() {
        found.agrees = collective_compared.execute(index);
    }
    action look_at_collective() {
        found.asks_the_same = collective_seen.execute(index);
    }

    table slot_collective_step {
        key = {
            netsum.kind: exact;
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
            (KIND_RESULT, 0): look_at_collective();
        }
    }

    // This access compares the collective, too: a contribution to something else must leave the bitmap as it is, in this access.
    Register<seen_t, pool_index_t>(CELLS, {0, 0}) slot_seen;

    RegisterAction<seen_t, pool_index_t, worker_bitmap_t>(slot_seen) first_seen = {
        void apply(inout seen_t held) {
            held.seen = bits;
            held.collective = found.collective;
        }
    };
    RegisterAction<seen_t, pool_index_t, worker_bitmap_t>(slot_seen) next_seen = {
        void apply(inout seen_t held, out worker_bitmap_t seen) {
            seen = held.seen;
            if (held.collective == found.collective || held.collective - found.collective == COLLECTIVE_FINAL) {
                held.seen = held.seen | bits;
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
    // Puts out the bits if the slot takes the RESULT, and none if it is not full, or final already.
    RegisterAction<seen_t, pool_index_t, worker_bitmap_t>(slot_seen) finished = {
        void apply(inout seen_t held, out worker_bitmap_t seen) {
            if (held.collective == found.collective && held.seen == bits) {
                seen = held.seen;
                held.collective = held.collective + COLLECTIVE_FINAL;
            } else {
                seen = 0;
            }
        }
    };

    action see_first() {
        first_seen.execute(index);
    }
    action see_next() {
        found.before = next_seen.execute(index);
    }
    action look_at_seen() {
        found.before = seen_read.execute(index);
    }
    action finish() {
        found.before = finished.execute(index);
    }

    table slot_seen_step {
        key = {
            netsum.kind: exact;
            found.newer: exact;
        }
        actions = {
            see_first;
            see_next;
            look_at_seen;
            finish;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        const entries = {
            (KIND_CONTRIBUTE, 1): see_first();
            (KIND_CONTRIBUTE, 0): see_next();
            (KIND_PROBE, 0): look_at_seen();
            (KIND_RESULT, 0): finish();
        }
    }

    apply {
        if (found.newer == 1 || found.held_chunk == (int<32>) netsum.chunk) {
            found.current = 1;
            slot_collective_step.apply();
        }
        if (found.newer == 1 || found.held_chunk == (int<32>) netsum.chunk || netsum.kind == KIND_PROBE) {
            slot_seen_step.apply();
        }
    }
}
