// One lane: a 32-bit word of the packet and its register over all pool indices. lanes.p4 repeats it.
//
// A lane is bits, and a signed number only where that matters: BMv2 reads a negative register<int<32>> back as a large
// positive number.

#define LANE_FIELD(i) bit<32> lane_##i;
#define LANE_REGISTER(i) register<bit<32>>(POOL_INDICES) lane_##i;
#define LANE_WRITE(i) lane_##i.write(index, lanes.lane_##i);
#define LANE_READ(i) lane_##i.read(lanes.lane_##i, index);
#define LANE_ADD(i) lane_##i.read(held, index); \
    lanes.lane_##i = (bit<32>) ((int<32>) held |+| (int<32>) lanes.lane_##i); LANE_WRITE(i)
#define LANE_MAX(i) lane_##i.read(held, index); \
    if ((int<32>) held > (int<32>) lanes.lane_##i) { lanes.lane_##i = held; } LANE_WRITE(i)
#define LANE_BOR(i) lane_##i.read(held, index); lanes.lane_##i = held | lanes.lane_##i; LANE_WRITE(i)
