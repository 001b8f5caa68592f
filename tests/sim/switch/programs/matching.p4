// Tables of every kind; each writes what it found.
#include <core.p4>
#include <v1model.p4>

header key_h { bit<12> a; bit<4> b; bit<32> ip; bit<48> mac; bit<16> port; bit<8> kind; }
header found_h { bit<8> exact; bit<8> lpm; bit<8> ternary; bit<8> range; bit<8> optional; bit<8> mixed; bit<8> consts; bit<8> hit; }

struct headers_t { key_h k; found_h f; }
struct metadata_t { }

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start { p.extract(h.k); transition accept; }
}
control V(inout headers_t h, inout metadata_t m) { apply { } }
control C(inout headers_t h, inout metadata_t m) { apply { } }
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) { apply { } }

control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    direct_counter(CounterType.packets_and_bytes) hits;
    action set_exact(bit<8> v) { h.f.exact = v; }
    action set_lpm(bit<8> v) { hits.count(); h.f.lpm = v; }
    action set_ternary(bit<8> v) { h.f.ternary = v; }
    action set_range(bit<8> v) { h.f.range = v; }
    action set_optional(bit<8> v) { h.f.optional = v; }
    action set_mixed(bit<8> v, bit<48> mac) { h.f.mixed = v; h.k.mac = mac; }
    action set_const(bit<8> v) { h.f.consts = v; }
    action leave() { exit; }
    table t_exact { key = { h.k.a: exact; h.k.b: exact; } actions = { set_exact; leave; NoAction; } default_action = set_exact(0xee); }
    table t_lpm { key = { h.k.ip: lpm; } actions = { set_lpm; NoAction; } counters = hits; }
    table t_ternary { key = { h.k.ip: ternary; h.k.port: ternary; } actions = { set_ternary; NoAction; } }
    table t_range { key = { h.k.port: range; h.k.kind: exact; } actions = { set_range; NoAction; } }
    table t_optional { key = { h.k.kind: optional; h.k.b: optional; } actions = { set_optional; NoAction; } }
    table t_mixed { key = { h.k.mac & 0xffff0000ffff: exact; h.k.ip: lpm; } actions = { set_mixed; NoAction; } }
    table t_const {
        key = { h.k.kind: ternary; }
        actions = { set_const; }
        const default_action = set_const(9);
        const entries = { 0x80 &&& 0xc0: set_const(1); 0x80 &&& 0x80: set_const(2); 0x07: set_const(3); }
    }
    apply {
        h.f.setValid();
        s.egress_spec = 1;
        t_lpm.apply();
        t_ternary.apply();
        if (t_range.apply().hit) { h.f.hit = 1; } else { h.f.hit = 2; }
        t_optional.apply();
        switch (t_mixed.apply().action_run) {
            set_mixed: { h.f.hit = h.f.hit + 0x10; }
            NoAction: { h.f.hit = h.f.hit + 0x20; }
        }
        t_const.apply();
        t_exact.apply();
        h.f.hit = h.f.hit + 0x80;
    }
}
control D(packet_out p, in headers_t h) { apply { p.emit(h.k); p.emit(h.f); } }

V1Switch(P(), V(), I(), E(), C(), D()) main;
