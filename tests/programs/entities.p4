// One of everything that P4Runtime can read or write, for the tests of the P4Runtime server.
//
// A packet is a header `probe` and a payload. Its fields `a` to `d` are what the tables match on; `op` says which part
// of the pipeline it takes.
#include <core.p4>
#include <v1model.p4>

const bit<9> CPU_PORT = 510;

enum bit<8> Op {
    TABLES = 1,
    MULTICAST = 2,
    CLONE = 3,
    TO_CPU = 4,
    LEARN = 5,
    STATE = 6,
    PROFILE = 7,
    METER = 8,
    VALUE_SET = 9
}

header probe_t {
    Op      op;
    bit<32> a;
    bit<16> b;
    bit<8>  c;
    bit<48> d;
    bit<8>  mark; // what the pipeline writes for the test to see
}

@controller_header("packet_in")
header packet_in_t {
    @id(1) bit<9>  ingress_port;
    @id(2) bit<7>  reason;
    @id(3) bit<16> length;
}

@controller_header("packet_out")
header packet_out_t {
    @id(1) bit<9>  egress_port;
    @id(2) bit<1>  handled;
    @id(3) bit<6>  padding;
}

struct headers_t {
    packet_in_t  packet_in;
    packet_out_t packet_out;
    probe_t      probe;
}

struct learned_t {
    bit<48> d;
    bit<9>  port;
}

struct metadata_t {
    bit<9>  one_port;
    bit<32> color;
    bit<1>  in_set;
}

parser ProbeParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    @size(4) value_set<bit<32>>(4) special_a;

    state start {
        transition select(standard.ingress_port) {
            CPU_PORT: parse_packet_out;
            default: parse_probe;
        }
    }

    state parse_packet_out {
        packet.extract(hdr.packet_out);
        transition parse_probe;
    }

    state parse_probe {
        packet.extract(hdr.probe);
        transition select(hdr.probe.a) {
            special_a: in_set;
            default: accept;
        }
    }

    state in_set {
        meta.in_set = 1;
        transition accept;
    }
}

control ProbeVerify(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control ProbeIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    counter(16, CounterType.packets) packets_seen;
    counter(16, CounterType.bytes) bytes_seen;
    counter(16, CounterType.packets_and_bytes) both_seen;
    meter(8, MeterType.packets) packet_meter;
    meter(8, MeterType.bytes) byte_meter;
    register<bit<32>>(64) words;
    register<bit<48>>(8) addresses;
    register<bit<8>>(8) octets;
    direct_counter(CounterType.packets_and_bytes) exact_hits;
    direct_meter<bit<32>>(MeterType.packets) ternary_meter;

    action drop() {
        mark_to_drop(standard);
    }

    action forward(bit<9> port) {
        standard.egress_spec = port;
    }

    action mark_and_forward(bit<8> mark, bit<9> port) {
        hdr.probe.mark = mark;
        standard.egress_spec = port;
    }

    action count_and_forward(bit<9> port) {
        exact_hits.count();
        standard.egress_spec = port;
    }

    action metered_forward(bit<9> port) {
        ternary_meter.read(meta.color);
        standard.egress_spec = port;
        hdr.probe.mark = (bit<8>) meta.color;
    }

    table exact_table {
        key = {
            hdr.probe.a: exact @name("a");
            hdr.probe.b: exact @name("b");
        }
        actions = { count_and_forward; mark_and_forward; drop; @defaultonly NoAction; }
        default_action = NoAction();
        counters = exact_hits;
        size = 64;
    }

    table lpm_table {
        key = { hdr.probe.a: lpm @name("a"); }
        actions = { forward; mark_and_forward; drop; }
        default_action = drop();
        size = 64;
    }

    table ternary_table {
        key = {
            hdr.probe.a: ternary @name("a");
            hdr.probe.c: exact @name("c");
        }
        actions = { metered_forward; mark_and_forward; @tableonly forward; drop; }
        const default_action = drop();
        meters = ternary_meter;
        size = 64;
    }

    table range_table {
        key = {
            hdr.probe.b: range @name("b");
            hdr.probe.c: optional @name("c");
            hdr.probe.d: ternary @name("d");
        }
        actions = { forward; mark_and_forward; NoAction; }
        default_action = NoAction();
        size = 4;
    }

    table const_table {
        key = { hdr.probe.c: exact @name("c"); }
        actions = { mark_and_forward; NoAction; }
        default_action = NoAction();
        const entries = {
            0xc1: mark_and_forward(0x11, 1);
            0xc2: mark_and_forward(0x22, 2);
        }
    }

    table initial_table {
        key = { hdr.probe.c: ternary @name("c"); }
        actions = { mark_and_forward; NoAction; }
        default_action = NoAction();
        entries = {
            0x80 &&& 0xc0: mark_and_forward(0x31, 1);
            0x40 &&& 0xc0: mark_and_forward(0x32, 2);
        }
        size = 16;
    }

    table keyless_table {
        actions = { forward; NoAction; }
        default_action = NoAction();
    }

    table idle_table {
        key = { hdr.probe.d: exact @name("d"); }
        actions = { forward; NoAction; }
        default_action = NoAction();
        support_timeout = true;
        size = 16;
    }

    action_profile(16) profile;
    table profile_table {
        key = { hdr.probe.b: exact @name("b"); }
        actions = { forward; mark_and_forward; NoAction; }
        implementation = profile;
        size = 16;
    }

    @max_group_size(8)
    action_selector(HashAlgorithm.crc16, 32, 16) spread;
    table selector_table {
        key = {
            hdr.probe.b: exact @name("b");
            hdr.probe.d: selector;
        }
        actions = { forward; mark_and_forward; NoAction; }
        implementation = spread;
        size = 16;
    }

    @max_group_size(8)
    action_selector(HashAlgorithm.crc16, 32, 16) one_shot_spread;
    table one_shot_table {
        key = {
            hdr.probe.b: exact @name("b");
            hdr.probe.d: selector;
        }
        actions = { forward; mark_and_forward; NoAction; }
        implementation = one_shot_spread;
        size = 16;
    }

    apply {
        bit<32> index = (bit<32>) hdr.probe.c;
        packets_seen.count(index & 15);
        bytes_seen.count(index & 15);
        both_seen.count(index & 15);
        if (hdr.packet_out.isValid()) {
            standard.egress_spec = hdr.packet_out.egress_port;
            hdr.probe.mark = (bit<8>) hdr.packet_out.handled;
            hdr.packet_out.setInvalid();
        } else if (hdr.probe.op == Op.TABLES) {
            standard.egress_spec = 0;
            if (!exact_table.apply().hit) {
                if (!ternary_table.apply().hit) {
                    if (!range_table.apply().hit) {
                        if (!const_table.apply().hit) {
                            if (!initial_table.apply().hit) {
                                if (!idle_table.apply().hit) {
                                    lpm_table.apply();
                                }
                            }
                        }
                    }
                }
            }
            keyless_table.apply();
        } else if (hdr.probe.op == Op.MULTICAST) {
            standard.mcast_grp = hdr.probe.b;
        } else if (hdr.probe.op == Op.CLONE) {
            standard.egress_spec = 1;
            clone(CloneType.I2E, (bit<32>) hdr.probe.b);
        } else if (hdr.probe.op == Op.TO_CPU) {
            standard.egress_spec = CPU_PORT;
        } else if (hdr.probe.op == Op.LEARN) {
            learned_t learned = { hdr.probe.d, standard.ingress_port };
            digest<learned_t>(1, learned);
            standard.egress_spec = 1;
        } else if (hdr.probe.op == Op.STATE) {
            bit<32> word;
            words.read(word, index);
            words.write(index, word + hdr.probe.a);
            addresses.write(index & 7, hdr.probe.d);
            octets.write(index & 7, hdr.probe.mark);
            hdr.probe.a = word;
            standard.egress_spec = 1;
        } else if (hdr.probe.op == Op.PROFILE) {
            if (!profile_table.apply().hit) {
                if (!selector_table.apply().hit) {
                    one_shot_table.apply();
                }
            }
        } else if (hdr.probe.op == Op.METER) {
            bit<2> color;
            packet_meter.execute_meter<bit<2>>(index & 7, color);
            hdr.probe.mark = (bit<8>) color;
            byte_meter.execute_meter<bit<2>>(index & 7, color);
            hdr.probe.mark = hdr.probe.mark | ((bit<8>) color << 4);
            standard.egress_spec = 1;
        } else if (hdr.probe.op == Op.VALUE_SET) {
            hdr.probe.mark = (bit<8>) meta.in_set;
            standard.egress_spec = 1;
        } else {
            mark_to_drop(standard);
        }
    }
}

control ProbeEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        if (standard.egress_port == CPU_PORT) {
            hdr.packet_in.setValid();
            hdr.packet_in.ingress_port = standard.ingress_port;
            hdr.packet_in.reason = (bit<7>) hdr.probe.c;
            hdr.packet_in.length = (bit<16>) standard.packet_length;
        }
        if (hdr.probe.op == Op.MULTICAST) {
            hdr.probe.mark = (bit<8>) standard.egress_rid;
        }
    }
}

control ProbeCompute(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control ProbeDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.packet_in);
        packet.emit(hdr.probe);
    }
}

V1Switch(ProbeParser(), ProbeVerify(), ProbeIngress(), ProbeEgress(), ProbeCompute(), ProbeDeparser()) main;
