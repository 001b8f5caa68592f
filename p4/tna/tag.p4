// The tag of a slot: epoch and chunk. A contribution to a newer chunk, or of another epoch, takes the slot.

const bit<32> CELLS = POOL_INDICES * PASSES; // a register has one for each pool index and pass

// The bits of an index that none inside the registers has: there is a power of two of them.
const pool_index_t BEYOND_POOL = ~((pool_index_t) CELLS - 1);

// Signed, so that comparing a difference of chunks with 0 is comparing modulo 2^32. Both words of a register are of one type.
struct tag_t {
    int<32> epoch;
    int<32> chunk;
}

// Twice: one register says whether the packet's tag is newer, the other which chunk was there.
control SlotTag(in netsum_h netsum, in bit<32> epoch, in pool_index_t index, inout finding_t found) {
    Register<tag_t, pool_index_t>(CELLS, {0, 0}) slot_tag;

    RegisterAction<tag_t, pool_index_t, bit<1>>(slot_tag) tag_taken = {
        void apply(inout tag_t held, out bit<1> is_newer) {
            if (held.epoch != (int<32>) epoch || (int<32>) netsum.chunk - held.chunk > 0) {
                held.epoch = (int<32>) epoch;
                held.chunk = (int<32>) netsum.chunk;
                is_newer = 1;
            } else {
                is_newer = 0;
            }
        }
    };
    RegisterAction<tag_t, pool_index_t, bit<1>>(slot_tag) tag_seen = {
        void apply(inout tag_t held, out bit<1> is_other_epoch) {
            if (held.epoch != (int<32>) epoch) {
                is_other_epoch = 1;
            } else {
                is_other_epoch = 0;
            }
        }
    };

    action take_tag() {
        found.newer = tag_taken.execute(index);
    }
    action look_at_tag() {
        found.newer = tag_seen.execute(index);
    }

    table slot_tag_step {
        key = {
            netsum.kind: exact;
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
            KIND_RESULT: look_at_tag();
        }
    }

    Register<tag_t, pool_index_t>(CELLS, {0, 0}) slot_chunk;

    RegisterAction<tag_t, pool_index_t, int<32>>(slot_chunk) chunk_taken = {
        void apply(inout tag_t held, out int<32> chunk) {
            chunk = held.chunk;
            if (held.epoch != (int<32>) epoch || (int<32>) netsum.chunk - held.chunk > 0) {
                held.epoch = (int<32>) epoch;
                held.chunk = (int<32>) netsum.chunk;
            }
        }
    };
    RegisterAction<tag_t, pool_index_t, int<32>>(slot_chunk) chunk_seen = {
        void apply(inout tag_t held, out int<32> chunk) {
            chunk = held.chunk;
        }
    };

    action take_chunk() {
        found.held_chunk = chunk_taken.execute(index);
    }
    action look_at_chunk() {
        found.held_chunk = chunk_seen.execute(index);
    }

    table slot_chunk_step {
        key = {
            netsum.kind: exact;
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
            KIND_RESULT: look_at_chunk();
        }
    }

    apply {
        slot_tag_step.apply();
        slot_chunk_step.apply();
    }
}
