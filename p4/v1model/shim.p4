// v1model's side of the names that p4/shared uses on both targets.

const port_t CPU_PORT = 510;

// The parser tests no checksum here: VerifyIpv4 (target.p4) does.
#define IPV4_CHECKSUM_UNIT
#define IPV4_CHECKSUM_TEST

typedef bit<32> job_index_t;
// A packet counter for each entry of a table; v1model counts without being asked.
#define ENTRY_COUNTER(name) direct_counter(CounterType.packets) name;
#define COUNT_ENTRY(name)

#define JOB_COUNTER(name) counter(JOB_COUNTERS, CounterType.packets) name;

#define ALL_LANES_BYTES LANES_BYTES // all go through in one pass

// The way that a PROBE has come, with one child more.
#define WAY_UP_UNIT
#define WAY_UP(way, child) (way << CHILD_BITS) | (bit<16>) child
