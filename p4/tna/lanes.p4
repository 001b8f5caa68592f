// The lanes of all slots: one instance each of the control in lane.p4. EACH_LANE of shared/lanes.p4 repeats.

#define LANE_INSTANCE(i) Lane() lane_##i;
#define LANE_APPLY(i) lane_##i.apply(lanes.lane_##i, op, worker, index, found);
#define LANE_EMPTY(i) lanes.lane_##i = 0;

control Lanes(inout lanes_h lanes, in bit<3> op, in bit<8> worker, in pool_index_t index, inout finding_t found) {
    EACH_LANE(LANE_INSTANCE)

    action set_seed(bit<32> seed) {
        found.seed = (int<32>) seed;
    }

    // Values that the lanes write for the first contribution to a tag, or for the parent's RESULT.
    table lane_seed {
        key = {
            worker: ternary @name("worker");
            found.newer: ternary;
            found.with_lanes: ternary;
            op: ternary @name("op");
        }
        actions = {
            set_seed;
        }
        const default_action = set_seed(SEED_KEEP);
        const entries = {
            (FROM_PARENT, _, _, _): set_seed(SEED_PACKET);
            (_, 1, 0, OP_MAX): set_seed(SEED_LOWEST);
            (_, 1, _, _): set_seed(SEED_PACKET); // its own lanes, or the zeros of EmptyLanes
        }
    }

    apply {
        lane_seed.apply();
        EACH_LANE(LANE_APPLY)
    }
}

// Neutral lanes for a packet that has none.
control EmptyLanes(inout lanes_h lanes) {
    action empty_lanes() {
        lanes.setValid();
        EACH_LANE(LANE_EMPTY)
    }

    apply {
        empty_lanes();
    }
}
