// The lanes of all slots: one instance each of the control in lane.p4. EACH_LANE of shared/lanes.p4 repeats.

#define LANE_INSTANCE(i) Lane() lane_##i;
#define LANE_APPLY(i) lane_##i.apply(lanes.lane_##i, netsum, index, found);
#define LANE_EMPTY(i) lanes.lane_##i = 0;

control Lanes(inout lanes_h lanes, in netsum_h netsum, in pool_index_t index, in finding_t found) {
    EACH_LANE(LANE_INSTANCE)

    apply { EACH_LANE(LANE_APPLY) }
}

control EmptyLanes(inout lanes_h lanes) {
    action empty_lanes() {
        lanes.setValid();
        EACH_LANE(LANE_EMPTY)
    }

    apply {
        empty_lanes();
    }
}
