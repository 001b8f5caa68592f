// Ethernet, ARP, ICMP, and the protocol on the program's UDP port.
//
// Unparseable packets are forwarded: extracted headers are kept, the rest is payload. So a packet for another program leaves
// byte for byte as it came.
//
// Facts that the switch needs first are found here, where they cost a pipeline no stage: the address that a packet asks for, and
// whether it is one of the few requests that are answered. The metadata comes in as zeros.

// Match on flags, whether a queue has marked the packet or not.
#define MARKED_OR_NOT(flags) (flags) &&& ~FLAG_CONGESTED

parser PacketParser(packet_in packet, out headers_t hdr, inout metadata_t meta, in port_t ingress_port) {
    IPV4_CHECKSUM_UNIT

    state start {
        transition select(ingress_port) {
            CPU_PORT: parse_packet_out;
            default: parse_ethernet;
        }
    }

    state parse_packet_out {
        packet.extract(hdr.packet_out);
        transition parse_ethernet;
    }

    state parse_ethernet {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ether_type) {
            ETHERTYPE_ARP: parse_arp;
            ETHERTYPE_IPV4: parse_ipv4;
            default: accept;
        }
    }

    state parse_arp {
        packet.extract(hdr.arp);
        meta.asked_address = hdr.arp.target_ip;
        transition select(hdr.arp.hardware_type, hdr.arp.protocol_type) {
            (ARP_ETHERNET, ETHERTYPE_IPV4): check_arp;
            default: accept;
        }
    }

    state check_arp {
        transition select(hdr.arp.hardware_bytes, hdr.arp.protocol_bytes, hdr.arp.operation) {
            (6, 4, ARP_REQUEST): is_request;
            default: accept;
        }
    }

    state is_request {
        meta.is_request = true;
        transition accept;
    }

    // Beyond the header only where it has no options and the packet is not a fragment.
    state parse_ipv4 {
        packet.extract(hdr.ipv4);
        IPV4_CHECKSUM_TEST
        meta.asked_address = hdr.ipv4.dst;
        transition select(hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.more_fragments, hdr.ipv4.fragment_offset,
                          hdr.ipv4.protocol) {
            (4, 5, 0, 0, PROTOCOL_ICMP): parse_icmp;
            (4, 5, 0, 0, PROTOCOL_UDP): parse_udp;
            default: accept;
        }
    }

    state parse_icmp {
        packet.extract(hdr.icmp);
        transition select(hdr.icmp.type, hdr.icmp.code) {
            (ICMP_ECHO_REQUEST, 0): is_request;
            default: accept;
        }
    }

    state parse_udp {
        packet.extract(hdr.udp);
        transition select(hdr.udp.dst_port) {
            NETSUM_UDP_PORT: check_lengths;
            default: accept;
        }
    }

    // Exact: the header, or the header and all lanes. Before the header, as a pipeline's parser holds few bytes of a packet.
    state check_lengths {
        transition select(hdr.udp.bytes, hdr.ipv4.total_bytes) {
            (UDP_BYTES + NETSUM_HEADER_BYTES, IPV4_BYTES + UDP_BYTES + NETSUM_HEADER_BYTES): parse_without_lanes;
            (UDP_BYTES + NETSUM_HEADER_BYTES + ALL_LANES_BYTES,
             IPV4_BYTES + UDP_BYTES + NETSUM_HEADER_BYTES + ALL_LANES_BYTES): parse_with_lanes;
#if TREE
            (UDP_BYTES + NETSUM_HEADER_BYTES + STATUS_HEADER_BYTES,
             IPV4_BYTES + UDP_BYTES + NETSUM_HEADER_BYTES + STATUS_HEADER_BYTES): parse_with_status;
#endif
            default: parse_netsum;
        }
    }

    // The checksum of UDP is not looked at: Linux leaves it unfinished between virtual interfaces.
    state parse_netsum {
        packet.extract(hdr.netsum);
        transition accept;
    }

    state parse_without_lanes {
        packet.extract(hdr.netsum);
        transition select(hdr.netsum.version, hdr.netsum.op) {
            (NETSUM_VERSION, OP_SUM): check_without_lanes;
            (NETSUM_VERSION, OP_MAX): check_without_lanes;
            (NETSUM_VERSION, OP_BOR): check_without_lanes;
            default: accept;
        }
    }

    state parse_with_lanes {
        packet.extract(hdr.netsum);
        transition select(hdr.netsum.version, hdr.netsum.op) {
            (NETSUM_VERSION, OP_SUM): check_with_lanes;
            (NETSUM_VERSION, OP_MAX): check_with_lanes;
            (NETSUM_VERSION, OP_BOR): check_with_lanes;
            default: accept;
        }
    }

    state check_without_lanes {
        transition select(hdr.netsum.kind, hdr.netsum.quorum, hdr.netsum.flags) {
            (KIND_CONTRIBUTE, _, MARKED_OR_NOT(0)): is_well_formed;
            (KIND_PROBE, _, 0): is_well_formed;
#if PASSES == 1
            (KIND_CONTRIBUTE, 0, MARKED_OR_NOT(FLAG_HEADER_ONLY)): is_well_formed;
#endif
#if TREE
            (KIND_RESULT, 0, MARKED_OR_NOT(0)): is_well_formed;
#endif
            default: accept;
        }
    }

    state check_with_lanes {
        transition select(hdr.netsum.kind, hdr.netsum.quorum, hdr.netsum.flags) {
            (KIND_CONTRIBUTE, 0, MARKED_OR_NOT(FLAG_LANES)): parse_lanes;
#if PASSES == 1
            (KIND_CONTRIBUTE, 0, MARKED_OR_NOT(FLAG_HEADER_ONLY | FLAG_LANES)): parse_lanes;
#endif
#if TREE
            (KIND_RESULT, 0, MARKED_OR_NOT(FLAG_LANES)): parse_lanes;
#endif
            default: accept;
        }
    }

#if TREE
    state parse_with_status {
        packet.extract(hdr.netsum);
        transition select(hdr.netsum.version, hdr.netsum.op) {
            (NETSUM_VERSION, OP_SUM): check_with_status;
            (NETSUM_VERSION, OP_MAX): check_with_status;
            (NETSUM_VERSION, OP_BOR): check_with_status;
            default: accept;
        }
    }

    // A parent's STATUS may carry a mismatch.
    state check_with_status {
        transition select(hdr.netsum.kind, hdr.netsum.flags) {
            (KIND_STATUS, 0 &&& ~FLAG_MISMATCH): parse_status;
            default: accept;
        }
    }

    state parse_status {
        packet.extract(hdr.status);
        transition is_well_formed;
    }
#endif

    state parse_lanes {
        packet.extract(hdr.lanes);
        transition is_well_formed;
    }

    state is_well_formed {
        meta.well_formed = true;
        transition accept;
    }
}
