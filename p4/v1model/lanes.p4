// The lanes of all slots. lane.p4 defines one lane, EACH_LANE of shared/lanes.p4 repeats it. One action over all lanes is what
// BMv2 runs fastest.

control Lanes(inout lanes_h lanes, in bit<32> index, in lane_step_t step) {
    EACH_LANE(LANE_REGISTER)

    bit<32> held = 0; // one for all: BMv2 makes each variable a field of every packet

    action write_all() { EACH_LANE(LANE_WRITE) }
    action add_all() { EACH_LANE(LANE_ADD) }
    action max_all() { EACH_LANE(LANE_MAX) }
    action bor_all() { EACH_LANE(LANE_BOR) }
    action read_all() { EACH_LANE(LANE_READ) }

    apply {
        if (step == LANE_STEP_WRITE) {
            write_all();
        } else if (step == LANE_STEP_ADD) {
            add_all();
        } else if (step == LANE_STEP_MAX) {
            max_all();
        } else if (step == LANE_STEP_BOR) {
            bor_all();
        } else if (step == LANE_STEP_READ) {
            read_all();
        }
    }
}
