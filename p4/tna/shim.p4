// TNA's side of the names that p4/shared uses on both targets.

// The port to the switch's own CPU, over PCIe, and the one whose packets come in again: -D replaces them. 320 is of a Tofino
// with four pipes (192 on one with two), and the second is of pipe 0.
#ifndef PCIE_PORT
#define PCIE_PORT (__TARGET_TOFINO__ == 1 ? 9w320 : 9w0)
#endif
#ifndef RECIRCULATION_PORT
#define RECIRCULATION_PORT (__TARGET_TOFINO__ == 1 ? 9w68 : 9w6)
#endif
const port_t CPU_PORT = PCIE_PORT;
const port_t PASS_PORT = RECIRCULATION_PORT;

#define IPV4_CHECKSUM_UNIT Checksum() ipv4_checksum;
#define IPV4_CHECKSUM_TEST ipv4_checksum.add(hdr.ipv4); meta.ipv4_checksum_wrong = ipv4_checksum.verify();

typedef bit<8> job_index_t;
#define ENTRY_COUNTER(name) DirectCounter<bit<64>>(CounterType_t.PACKETS) name;
#define COUNT_ENTRY(name) name.count();

#define JOB_COUNTER(name) Counter<bit<64>, job_index_t>(JOB_COUNTERS, CounterType_t.PACKETS) name;

#define LANE_FIELD(i) int<32> lane_##i;

// How often a packet passes for all of its lanes.
#ifndef PASSES
#define PASSES 1
#endif
#define ALL_LANES_BYTES (LANES_BYTES * PASSES)

// Whether the switch is in a tree of switches.
#ifndef TREE
#define TREE 0
#endif

// The slot of a quorum has no lanes: its RESULT has the header of a STATUS, which names the contributors.
#define QUORUM_WITHOUT_LANES

// The way that a PROBE has come, with one child more: wired, for a shift would need the fields in certain containers.
#define WAY_UP_UNIT Hash<bit<16>>(HashAlgorithm_t.IDENTITY) way_up;
#define WAY_UP(way, child) way_up.get({ way[15 - CHILD_BITS:0], child[CHILD_BITS - 1:0] })
