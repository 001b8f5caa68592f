// Bitmap of workers beside slot_seen. For the slot of a quorum: the contributors; slot_seen also has the bits of late workers.
// For any other slot: the workers that need a header-only RESULT
// (docs/protocol.md#header-only-results); their copies lose the lanes in egress, by CopyParser.

control SlotWorkers(inout headers_t hdr, in pool_index_t index, in worker_bitmap_t bits, in finding_t found,
                    inout bit<1> names_members, inout worker_bitmap_t header_only) {
    Register<bit<32>, pool_index_t>(CELLS, 0) slot_workers;

    RegisterAction<bit<32>, pool_index_t, bit<32>>(slot_workers) this_one = {
        void apply(inout bit<32> held, out bit<32> now) {
            held = bits;
            now = held;
        }
    };
    RegisterAction<bit<32>, pool_index_t, bit<32>>(slot_workers) none = {
        void apply(inout bit<32> held, out bit<32> now) {
            held = 0;
            now = held;
        }
    };
    RegisterAction<bit<32>, pool_index_t, bit<32>>(slot_workers) one_more = {
        void apply(inout bit<32> held, out bit<32> now) {
            held = held | bits;
            now = held;
        }
    };
    RegisterAction<bit<32>, pool_index_t, bit<32>>(slot_workers) those_held = {
        void apply(inout bit<32> held, out bit<32> now) {
            now = held;
        }
    };

    @hidden action name_them() {
        hdr.status.slot_chunk = hdr.netsum.chunk;
        names_members = 1;
    }

    action take_member() {
        hdr.status.seen = this_one.execute(index);
        name_them();
    }
    action add_member() {
        hdr.status.seen = one_more.execute(index);
        name_them();
    }
    action read_members() {
        hdr.status.seen = those_held.execute(index);
        name_them();
    }
    action take_header() {
        header_only = this_one.execute(index);
    }
    action take_none() {
        header_only = none.execute(index);
    }
    action add_header() {
        header_only = one_more.execute(index);
    }
    action read_headers() {
        header_only = those_held.execute(index);
    }

    table slot_workers_step {
        key = {
            hdr.netsum.flags: ternary;
            hdr.netsum.quorum: ternary;
            found.asks_the_same: ternary;
            found.agrees: ternary;
            found.newer: ternary;
            found.marks: ternary;
            found.mine: ternary;
        }
        actions = {
            take_member;
            add_member;
            read_members;
            take_header;
            take_none;
            add_header;
            read_headers;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        const entries = {
            (_, 1, 1, _, _, _, _): read_members(); // a PROBE
            (_, 1, _, 1, 1, _, _): take_member();
            (_, 1, _, 1, 0, MISSING_NONE, _): read_members();
            (_, 1, _, 1, 0, _, 0): add_member();
            (_, 1, _, 1, 0, _, _): read_members();
            (_, _, 1, _, _, _, _): read_headers(); // the parent's
            (HAS_HEADER_ONLY, _, _, 1, 1, _, _): take_header();
            (_, _, _, 1, 1, _, _): take_none();
            (HAS_HEADER_ONLY, _, _, 1, 0, _, 0): add_header();
            (_, _, _, 1, 0, _, _): read_headers();
        }
    }

    apply {
        slot_workers_step.apply();
    }
}
