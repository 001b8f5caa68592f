// The marks of a slot, a byte: whether it has lanes, whether they are the parent's RESULT, and of a slot that a quorum
// completes, how many contributions are missing. They wait for nothing but the bit of this worker.

// MARK_LANES and MARK_FINAL, of shared/tree.p4, are the lowest two bits. Above them, of a quorum, is 1 more than the number of
// missing contributions: a slot that none completes has 0 there.
const bit<8> MISSING_UNIT = 4;
const bit<8> MISSING_NONE = MISSING_UNIT;
const bit<8> MISSING_ONE = 2 * MISSING_UNIT;

// `mark`: the packet's bits; for the first contribution to a quorum's slot, the quorum.
control SlotMarks(in netsum_h netsum, in pool_index_t index, in bit<8> worker, in bit<8> mark, inout finding_t found) {
    Register<bit<8>, pool_index_t>(CELLS, 0) slot_marks;

    RegisterAction<bit<8>, pool_index_t, bit<8>>(slot_marks) marks_taken = {
        void apply(inout bit<8> held, out bit<8> now) {
            if (worker == FROM_PARENT) {
                held = mark | MARK_FINAL;
            } else {
                held = mark;
            }
            now = held;
        }
    };
    RegisterAction<bit<8>, pool_index_t, bit<8>>(slot_marks) marks_added = {
        void apply(inout bit<8> held, out bit<8> now) {
            held = held | mark;
            now = held;
        }
    };
    RegisterAction<bit<8>, pool_index_t, bit<8>>(slot_marks) marks_read = {
        void apply(inout bit<8> held, out bit<8> now) {
            now = held;
        }
    };
    // Puts out the number of missing contributions before this one.
    RegisterAction<bit<8>, pool_index_t, bit<8>>(slot_marks) one_less_missing = {
        void apply(inout bit<8> held, out bit<8> now) {
            now = held;
            if (held > MISSING_NONE) {
                held = held - MISSING_UNIT;
            }
        }
    };

    action take_marks() {
        found.marks = marks_taken.execute(index);
    }
    action add_marks() {
        found.marks = marks_added.execute(index);
    }
    action read_marks() {
        found.marks = marks_read.execute(index);
    }
    action count_down() {
        found.marks = one_less_missing.execute(index);
    }

    table slot_marks_step {
        key = {
            netsum.kind: ternary;
            netsum.quorum: ternary;
            found.asks_the_same: ternary;
            found.agrees: ternary;
            found.newer: ternary;
            found.mine: ternary;
        }
        actions = {
            take_marks;
            add_marks;
            read_marks;
            count_down;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        const entries = {
            (KIND_PROBE, _, 1, _, _, _): read_marks();
            // For a RESULT, `mine` says whether the slot took it.
            (KIND_RESULT, _, 1, _, _, 0): read_marks();
            (KIND_RESULT, _, 1, _, _, _): take_marks();
            (_, 1, _, 1, 0, 0): count_down();
            (_, _, _, 1, 1, _): take_marks();
            (_, _, _, 1, 0, 0): add_marks();
            (_, _, _, 1, 0, _): read_marks();
        }
    }

    apply {
        slot_marks_step.apply();
    }
}
