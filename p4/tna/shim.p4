// What p4/shared calls by names that both targets have, as TNA has it.

// The port to the switch's own CPU, over PCIe: 320 on a Tofino with four pipes, 192 on one with two.
#ifndef PCIE_PORT
#if __TARGET_TOFINO__ == 1
#define PCIE_PORT 320
#else
#define PCIE_PORT 0
#endif
#endif
const port_t CPU_PORT = PCIE_PORT;

#define IPV4_CHECKSUM_UNIT Checksum() ipv4_checksum;
#define IPV4_CHECKSUM_TEST ipv4_checksum.add(hdr.ipv4); meta.ipv4_checksum_wrong = ipv4_checksum.verify();

typedef bit<8> job_index_t;
#define ENTRY_COUNTER(name) DirectCounter<bit<64>>(CounterType_t.PACKETS) name;
#define COUNT_ENTRY(name) name.count();

#define JOB_COUNTER(name) Counter<bit<64>, job_index_t>(JOB_COUNTERS, CounterType_t.PACKETS) name;

// How often a packet passes for all of its lanes.
#ifndef PASSES
#define PASSES 1
#endif
#if PASSES > 1
#define IS_FURTHER_PASS hdr.pass.isValid()
#else
#define IS_FURTHER_PASS false
#endif
#define ALL_LANES_BYTES (LANES_BYTES * PASSES)

// A switch in a tree of switches: tree.p4.
#ifndef TREE
#define TREE 0
#endif

// Slots that a quorum completes: in the program of a single switch.
#define QUORUM (TREE == 0)
// The way that a PROBE has come, with one child more: wired, for a shift would need the fields in certain containers.
#define WAY_UP_UNIT Hash<bit<16>>(HashAlgorithm_t.IDENTITY) way_up;
#define WAY_UP(way, child) way_up.get({ way[15 - CHILD_BITS:0], child[CHILD_BITS - 1:0] })
