// Value sets, of one field and of two, under a mask; a stack of unions.
#include <core.p4>
#include <v1model.p4>

header in_h { bit<12> a; bit<4> b; bit<32> c; }
header out_h { bit<8> path; }
header short_h { bit<8> tag; }
header long_h { bit<8> tag; bit<16> value; }
header_union item_u { short_h s; long_h l; }
struct headers_t { out_h o; in_h i; item_u[3] items; }
struct metadata_t { bit<8> path; }
struct pair_t { bit<12> a; bit<4> b; }

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    value_set<bit<32>>(8) ones;
    value_set<pair_t>(8) pairs;
    state start {
        p.extract(h.i);
        m.path = 0;
        transition select(h.i.c) { ones: one; default: next; }
    }
    state one { m.path = 1; transition next; }
    state next { transition select(h.i.a, h.i.b) { pairs: two; default: items; } }
    state two { m.path = m.path + 2; transition items; }
    state items { transition select(p.lookahead<bit<8>>()) { 1: short; 2: long; default: accept; } }
    state short { p.extract(h.items.next.s); transition items; }
    state long { p.extract(h.items.next.l); transition items; }
}
control V(inout headers_t h, inout metadata_t m) { apply { } }
control C(inout headers_t h, inout metadata_t m) { apply { } }
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) { apply { } }
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    apply {
        h.o.setValid();
        h.o.path = m.path;
        if (s.parser_error != error.NoError) { h.o.path = h.o.path + 0x80; }
        if (h.items[1].s.isValid()) { h.items[0] = h.items[1]; }
        if (h.items[2].l.isValid()) { h.items[2].s.setValid(); h.items[2].s.tag = 9; }
        s.egress_spec = 1;
    }
}
control D(packet_out p, in headers_t h) { apply { p.emit(h.o); p.emit(h.i); p.emit(h.items); } }

V1Switch(P(), V(), I(), E(), C(), D()) main;
