// Whose contributions a slot has that a quorum completes. slot_seen has the bits of those that were late, too.

control QuorumMembers(inout headers_t hdr, in pool_index_t index, in worker_bitmap_t bits, in finding_t found,
                      inout bit<1> names_members) {
    Register<bit<32>, pool_index_t>(CELLS, 0) slot_members;

    RegisterAction<bit<32>, pool_index_t, bit<32>>(slot_members) first_member = {
        void apply(inout bit<32> held, out bit<32> now) {
            held = bits;
            now = held;
        }
    };
    RegisterAction<bit<32>, pool_index_t, bit<32>>(slot_members) next_member = {
        void apply(inout bit<32> held, out bit<32> now) {
            held = held | bits;
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
        hdr.status.seen = first_member.execute(index);
        name_them();
    }
    action add_member() {
        hdr.status.seen = next_member.execute(index);
        name_them();
    }
    action read_members() {
        hdr.status.seen = members_read.execute(index);
        name_them();
    }

    table slot_members_step {
        key = {
            hdr.netsum.flags: ternary;
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
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        const entries = {
            (OF_QUORUM, 1, _, _, _, _): read_members(); // a PROBE
            (OF_QUORUM, _, 1, 1, _, _): take_member();
            (OF_QUORUM, _, 1, 0, MISSING_NONE, _): read_members();
            (OF_QUORUM, _, 1, 0, _, 0): add_member();
            (OF_QUORUM, _, 1, 0, _, _): read_members();
        }
    }

    apply {
        slot_members_step.apply();
    }
}
