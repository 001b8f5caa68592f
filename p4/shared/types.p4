// Words that the whole program uses.

typedef bit<9> port_t;
typedef bit<48> mac_t;
typedef bit<32> ipv4_address_t;
typedef bit<16> mcast_group_t;
typedef bit<32> worker_bitmap_t;
typedef bit<16> pool_index_t; // absolute: slot of the switch * 2 + pool version

const bit<16> ETHERTYPE_IPV4 = 0x0800;
const bit<16> ETHERTYPE_ARP = 0x0806;
const bit<8> PROTOCOL_ICMP = 1;
const bit<8> PROTOCOL_UDP = 17;
const bit<16> ETHERNET_BYTES = 14;
const bit<16> IPV4_BYTES = 20;
const bit<16> UDP_BYTES = 8;
const bit<8> INITIAL_TTL = 64;
const bit<8> ECT_0 = 2; // of the IPv4 type of service: the sender reacts to marks (RFC 3168); in CE too

const bit<16> ARP_ETHERNET = 1; // hardware type
const bit<16> ARP_REQUEST = 1;
const bit<16> ARP_REPLY = 2;
const bit<8> ICMP_ECHO_REPLY = 0;
const bit<8> ICMP_ECHO_REQUEST = 8;

// Outcome of a packet for the switch's netsum port. Decided once, counted once.
typedef bit<4> outcome_t;
const outcome_t OUTCOME_NONE = 0; // it was not one
const outcome_t OUTCOME_MALFORMED = 1;
const outcome_t OUTCOME_NOT_ADMITTED = 2;
const outcome_t OUTCOME_OUT_OF_RANGE = 3;
const outcome_t OUTCOME_PROBED = 4;
const outcome_t OUTCOME_STALE = 5;
const outcome_t OUTCOME_MISMATCH = 6;
const outcome_t OUTCOME_ADDED = 7; // and the slot waits for others
const outcome_t OUTCOME_COMPLETED = 8; // it was the last one
const outcome_t OUTCOME_DUPLICATE_DROPPED = 9; // added before, the slot waits for others
const outcome_t OUTCOME_DUPLICATE_ANSWERED = 10; // added before, the slot is full

// In place of a slot's collective: its workers disagree. No packet asks for this one, so the next packet disagrees too.
const bit<32> COLLECTIVE_DISPUTED = 0xFFFFFFFF;

// Operation on all lanes of a packet.
typedef bit<3> lane_step_t;
const lane_step_t LANE_STEP_NONE = 0;
const lane_step_t LANE_STEP_WRITE = 1; // slot := packet
const lane_step_t LANE_STEP_ADD = 2; // slot, packet := slot + packet, saturating
const lane_step_t LANE_STEP_MAX = 3; // slot, packet := the larger
const lane_step_t LANE_STEP_BOR = 4; // slot, packet := bitwise or
const lane_step_t LANE_STEP_READ = 5; // packet := slot

// How a packet leaves.
typedef bit<2> send_t;
const send_t SEND_NOWHERE = 0;
const send_t SEND_TO_PORT = 1; // out of one port
const send_t SEND_TO_GROUP = 2; // to a multicast group
const send_t SEND_TO_OTHERS = 3; // to a multicast group, but not to where it came from
