// The exponent of a slot. The packet leaves with its slot's exponent; a PROBE keeps its own, which is its number.

control SlotExponent(inout netsum_h netsum, in pool_index_t index, in finding_t found) {
    Register<bit<16>, pool_index_t>(CELLS, 0) slot_exponent;

    RegisterAction<bit<16>, pool_index_t, bit<16>>(slot_exponent) first_exponent = {
        void apply(inout bit<16> held, out bit<16> now) {
            held = netsum.exponent;
            now = held;
        }
    };
    RegisterAction<bit<16>, pool_index_t, bit<16>>(slot_exponent) larger_exponent = {
        void apply(inout bit<16> held, out bit<16> now) {
            held = max(held, netsum.exponent);
            now = held;
        }
    };
    RegisterAction<bit<16>, pool_index_t, bit<16>>(slot_exponent) exponent_read = {
        void apply(inout bit<16> held, out bit<16> now) {
            now = held;
        }
    };

    action take_exponent() {
        netsum.exponent = first_exponent.execute(index);
    }
    action max_exponent() {
        netsum.exponent = larger_exponent.execute(index);
    }
    action read_exponent() {
        netsum.exponent = exponent_read.execute(index);
    }

    table slot_exponent_step {
        key = {
            netsum.kind: ternary;
            netsum.quorum: ternary;
            found.marks: ternary;
            found.asks_the_same: ternary;
            found.agrees: ternary;
            found.newer: ternary;
            found.mine: ternary;
        }
        actions = {
            take_exponent;
            max_exponent;
            read_exponent;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        const entries = {
            (KIND_RESULT, _, _, 1, _, _, 0): read_exponent();
            (KIND_RESULT, _, _, 1, _, _, _): take_exponent();
            (_, 1, MISSING_NONE, _, 1, 0, _): read_exponent(); // a late one raises nothing
            (_, _, _, _, 1, 1, _): take_exponent();
            (_, _, _, _, 1, 0, 0): max_exponent();
            (_, _, _, _, 1, 0, _): read_exponent();
        }
    }

    apply {
        slot_exponent_step.apply();
    }
}
