// Ethernet and what the program looks into: ARP, ICMP, and the protocol on its UDP port.
//
// What cannot be parsed is no error: the headers that were found stand, the rest is payload, and forwarding puts both
// together again. So a packet for somebody else leaves byte for byte as it came, whatever is in it.

parser PacketParser(packet_in packet, out headers_t hdr, in port_t ingress_port) {
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
        transition accept;
    }

    // Beyond the header only where it has no options and the packet is not a fragment.
    state parse_ipv4 {
        packet.extract(hdr.ipv4);
        transition select(hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.more_fragments, hdr.ipv4.fragment_offset,
                          hdr.ipv4.protocol) {
            (4, 5, 0, 0, PROTOCOL_ICMP): parse_icmp;
            (4, 5, 0, 0, PROTOCOL_UDP): parse_udp;
            default: accept;
        }
    }

    state parse_icmp {
        packet.extract(hdr.icmp);
        transition accept;
    }

    state parse_udp {
        packet.extract(hdr.udp);
        transition select(hdr.udp.dst_port) {
            NETSUM_UDP_PORT: parse_netsum;
            default: accept;
        }
    }

    state parse_netsum {
        packet.extract(hdr.netsum);
        transition select(hdr.netsum.flags, hdr.udp.bytes) {
            (FLAG_LANES, UDP_BYTES + NETSUM_HEADER_BYTES + LANE_COUNT * LANE_BYTES): parse_lanes;
            default: accept;
        }
    }

    state parse_lanes {
        packet.extract(hdr.lanes);
        transition accept;
    }
}
