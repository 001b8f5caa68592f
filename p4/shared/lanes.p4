// A packet's lanes. LANE_FIELD, of the target's lane.p4, is a lane's field; EACH_LANE(M) expands to M(0) M(1) ... M(LANES - 1).
//
// P4 and its preprocessor have no loops, so the macros paste the decimal digits of a lane's number.

#define EACH_2(M, d) M(d##0) M(d##1)
#define EACH_4(M, d) EACH_2(M, d) M(d##2) M(d##3)
#define EACH_6(M, d) EACH_4(M, d) M(d##4) M(d##5)
#define EACH_8(M, d) EACH_6(M, d) M(d##6) M(d##7)
#define EACH_10(M, d) EACH_8(M, d) M(d##8) M(d##9)
#define EACH_100(M, d) EACH_10(M, d##0) EACH_10(M, d##1) EACH_10(M, d##2) EACH_10(M, d##3) EACH_10(M, d##4) EACH_10(M, d##5) \
    EACH_10(M, d##6) EACH_10(M, d##7) EACH_10(M, d##8) EACH_10(M, d##9)
#define FIRST_60(M) EACH_10(M,) EACH_10(M, 1) EACH_10(M, 2) EACH_10(M, 3) EACH_10(M, 4) EACH_10(M, 5)
#define FIRST_100(M) FIRST_60(M) EACH_10(M, 6) EACH_10(M, 7) EACH_10(M, 8) EACH_10(M, 9)
#if LANES == 8
const bit<16> LANES_BYTES = 32;
#define EACH_LANE(M) EACH_8(M,)
#elif LANES == 16
const bit<16> LANES_BYTES = 64;
#define EACH_LANE(M) EACH_10(M,) EACH_6(M, 1)
#elif LANES == 32
const bit<16> LANES_BYTES = 128;
#define EACH_LANE(M) EACH_10(M,) EACH_10(M, 1) EACH_10(M, 2) EACH_2(M, 3)
#elif LANES == 64
const bit<16> LANES_BYTES = 256;
#define EACH_LANE(M) FIRST_60(M) EACH_4(M, 6)
#elif LANES == 256
const bit<16> LANES_BYTES = 1024;
#define EACH_LANE(M) FIRST_100(M) EACH_100(M, 1) \
    EACH_10(M, 20) EACH_10(M, 21) EACH_10(M, 22) EACH_10(M, 23) EACH_10(M, 24) EACH_6(M, 25)
#elif LANES == 512
const bit<16> LANES_BYTES = 2048;
#define EACH_LANE(M) FIRST_100(M) EACH_100(M, 1) EACH_100(M, 2) EACH_100(M, 3) EACH_100(M, 4) EACH_10(M, 50) EACH_2(M, 51)
#elif LANES == 1024
const bit<16> LANES_BYTES = 4096;
#define EACH_LANE(M) FIRST_100(M) EACH_100(M, 1) EACH_100(M, 2) EACH_100(M, 3) EACH_100(M, 4) EACH_100(M, 5) \
    EACH_100(M, 6) EACH_100(M, 7) EACH_100(M, 8) EACH_100(M, 9) EACH_10(M, 100) EACH_10(M, 101) EACH_4(M, 102)
#else
#error "netsum.p4 is compiled with -D LANES=64, 256, 512 or 1024; for Tofino with -D LANES=8, 16, 32 or 64"
#endif

header lanes_h {
    EACH_LANE(LANE_FIELD)
}
