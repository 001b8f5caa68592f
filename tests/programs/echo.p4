// Sends every UDP datagram back to where it came from, for the tests of the ports: addresses and UDP ports are
// exchanged, and the packet leaves by the port it came in by, or by port `hdr.command.port` if its first byte is 'P'.
#include <core.p4>
#include <v1model.p4>

header ethernet_t {
    bit<48> dst;
    bit<48> src;
    bit<16> type;
}

header ipv4_t {
    bit<4>  version;
    bit<4>  ihl;
    bit<8>  tos;
    bit<16> length;
    bit<16> id;
    bit<3>  flags;
    bit<13> fragment;
    bit<8>  ttl;
    bit<8>  protocol;
    bit<16> checksum;
    bit<32> src;
    bit<32> dst;
}

header udp_t {
    bit<16> src;
    bit<16> dst;
    bit<16> length;
    bit<16> checksum;
}

header command_t {
    bit<8>  letter;
    bit<7>  reserved;
    bit<9>  port;
}

struct headers_t {
    ethernet_t ethernet;
    ipv4_t     ipv4;
    udp_t      udp;
    command_t  command;
}

struct metadata_t {}

parser EchoParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.type) {
            0x0800: parse_ipv4;
            default: accept;
        }
    }

    state parse_ipv4 {
        packet.extract(hdr.ipv4);
        transition select(hdr.ipv4.ihl, hdr.ipv4.protocol) {
            (5, 17): parse_udp;
            default: accept;
        }
    }

    state parse_udp {
        packet.extract(hdr.udp);
        transition select(packet.lookahead<bit<8>>()) {
            0x50: parse_command;
            default: accept;
        }
    }

    state parse_command {
        packet.extract(hdr.command);
        transition accept;
    }
}

control EchoVerify(inout headers_t hdr, inout metadata_t meta) {
    apply {
        verify_checksum(
            hdr.ipv4.isValid(),
            {
                hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.tos, hdr.ipv4.length, hdr.ipv4.id, hdr.ipv4.flags,
                hdr.ipv4.fragment, hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.src, hdr.ipv4.dst
            },
            hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

control EchoIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    counter(512, CounterType.packets) seen;

    apply {
        seen.count((bit<32>) standard.ingress_port);
        if (!hdr.udp.isValid() || standard.checksum_error == 1) {
            mark_to_drop(standard);
            return;
        }
        bit<48> mac = hdr.ethernet.src;
        hdr.ethernet.src = hdr.ethernet.dst;
        hdr.ethernet.dst = mac;
        bit<32> ip = hdr.ipv4.src;
        hdr.ipv4.src = hdr.ipv4.dst;
        hdr.ipv4.dst = ip;
        bit<16> udp = hdr.udp.src;
        hdr.udp.src = hdr.udp.dst;
        hdr.udp.dst = udp;
        standard.egress_spec = standard.ingress_port;
        if (hdr.command.isValid()) {
            standard.egress_spec = hdr.command.port;
        }
    }
}

control EchoEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {}
}

control EchoCompute(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control EchoDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.udp);
        packet.emit(hdr.command);
    }
}

V1Switch(EchoParser(), EchoVerify(), EchoIngress(), EchoEgress(), EchoCompute(), EchoDeparser()) main;
