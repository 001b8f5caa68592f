// Packet formats, and the metadata of a packet.

header ethernet_h {
    mac_t dst;
    mac_t src;
    bit<16> ether_type;
}

header arp_h {
    bit<16> hardware_type;
    bit<16> protocol_type;
    bit<8> hardware_bytes;
    bit<8> protocol_bytes;
    bit<16> operation;
    mac_t sender_mac;
    ipv4_address_t sender_ip;
    mac_t target_mac;
    ipv4_address_t target_ip;
}

header ipv4_h {
    bit<4> version;
    bit<4> ihl;
    bit<8> tos;
    bit<16> total_bytes;
    bit<16> identification;
    bit<1> reserved;
    bit<1> dont_fragment;
    bit<1> more_fragments;
    bit<13> fragment_offset;
    bit<8> ttl;
    bit<8> protocol;
    bit<16> checksum;
    ipv4_address_t src;
    ipv4_address_t dst;
}

header icmp_h {
    bit<8> type;
    bit<8> code;
    bit<16> checksum;
}

header udp_h {
    bit<16> src_port;
    bit<16> dst_port;
    bit<16> bytes;
    bit<16> checksum;
}

// 16 bits wide each, so that the P4Runtime side has no padding to fill in.
@controller_header("packet_out")
header packet_out_h {
    bit<16> egress_port;
}

@controller_header("packet_in")
header packet_in_h {
    bit<16> ingress_port;
}

struct headers_t {
    packet_out_h packet_out;
    packet_in_h packet_in;
    ethernet_h ethernet;
    arp_h arp;
    ipv4_h ipv4;
    icmp_h icmp;
    udp_h udp;
    netsum_h netsum;
    status_h status;
    lanes_h lanes;
}

// A worker's admission.
struct admission_t {
    worker_bitmap_t worker_bit;
    worker_bitmap_t full_mask;
    bit<8> num_workers;
    bit<32> epoch;
    mcast_group_t mcast_group;
    pool_index_t index; // of the pool slot the packet is for
    bit<16> indices_left; // how many pool indices of the job are left from this one on; 0: it has none such
    bool admitted;
}

struct metadata_t {
    // From the architecture.
    port_t ingress_port;
    bool ipv4_checksum_wrong; // looked at only without IPv4 options

    // From the parser.
    ipv4_address_t asked_address; // the IPv4 destination, or what ARP asks for; else 0
    bool is_request; // for ARP or an echo: one the switch would answer at its own address
    bool well_formed; // a CONTRIBUTE or PROBE as the protocol wants them, lengths included

    bool is_own; // it asks for, or is addressed to, an address of the switch
    mac_t own_mac;
    admission_t admission;
    outcome_t outcome;

    send_t send;
    port_t egress_port; // with SEND_TO_PORT
    mcast_group_t mcast_group; // with SEND_TO_GROUP, SEND_TO_OTHERS
    bool is_answer; // a RESULT or STATUS: each copy is addressed in egress
    bool ipv4_is_new; // the IPv4 checksum must be computed
}
