// The lanes of all slots. lane.p4 defines one lane; EACH_LANE(M) expands to M(0) M(1) ... M(LANES - 1).
//
// P4 and its preprocessor have no loops, so the macros paste the decimal digits of a lane's number. One action over all
// lanes is what BMv2 runs fastest.

#define EACH_4(M, d) M(d##0) M(d##1) M(d##2) M(d##3)
#define EACH_6(M, d) EACH_4(M, d) M(d##4) M(d##5)
#define EACH_10(M, d) EACH_6(M, d) M(d##6) M(d##7) M(d##8) M(d##9)
#define EACH_60(M) EACH_10(M,) EACH_10(M, 1) EACH_10(M, 2) EACH_10(M, 3) EACH_10(M, 4) EACH_10(M, 5)
#if LANES == 64
#define EACH_LANE(M) EACH_60(M) EACH_4(M, 6)
#elif LANES == 256
#define EACH_LANE(M) EACH_60(M) EACH_10(M, 6) EACH_10(M, 7) EACH_10(M, 8) EACH_10(M, 9) EACH_10(M, 10) EACH_10(M, 11) \
    EACH_10(M, 12) EACH_10(M, 13) EACH_10(M, 14) EACH_10(M, 15) EACH_10(M, 16) EACH_10(M, 17) EACH_10(M, 18) EACH_10(M, 19) \
    EACH_10(M, 20) EACH_10(M, 21) EACH_10(M, 22) EACH_10(M, 23) EACH_10(M, 24) EACH_6(M, 25)
#endif

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
