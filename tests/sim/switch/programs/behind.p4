// Headers behind a large one of equal fields, or without it.
#include <core.p4>
#include <v1model.p4>

header kind_h { bit<8> what; }
header lanes_h {
    bit<32> l0; bit<32> l1; bit<32> l2; bit<32> l3; bit<32> l4; bit<32> l5; bit<32> l6; bit<32> l7; bit<32> l8; bit<32> l9;
    bit<32> l10; bit<32> l11; bit<32> l12; bit<32> l13; bit<32> l14; bit<32> l15; bit<32> l16; bit<32> l17; bit<32> l18; bit<32> l19;
    bit<32> l20; bit<32> l21; bit<32> l22; bit<32> l23; bit<32> l24; bit<32> l25; bit<32> l26; bit<32> l27; bit<32> l28; bit<32> l29;
    bit<32> l30; bit<32> l31; bit<32> l32; bit<32> l33; bit<32> l34; bit<32> l35; bit<32> l36; bit<32> l37; bit<32> l38; bit<32> l39;
}
header tail_h { bit<32> first; bit<16> second; }
struct headers_t { kind_h kind; lanes_h lanes; tail_h tail; kind_h last; }
struct metadata_t { }

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start {
        p.extract(h.kind);
        transition select(h.kind.what[1:0]) { 0: tail; 1: all; default: lanes; }
    }
    state lanes { p.extract(h.lanes); transition select(h.kind.what[2:2]) { 0: tail; default: accept; } }
    state all { p.extract(h.lanes); p.extract(h.tail); transition last; }
    state tail { p.extract(h.tail); transition last; }
    state last { transition select(p.lookahead<bit<8>>()) { 0x80 &&& 0x80: extract_last; default: accept; } }
    state extract_last { p.extract(h.last); transition accept; }
}
control V(inout headers_t h, inout metadata_t m) { apply { } }
control C(inout headers_t h, inout metadata_t m) { apply { } }
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    apply {
        s.egress_spec = (bit<9>) h.kind.what[7:6];
        if (h.lanes.isValid() && h.tail.isValid()) { h.lanes.l3 = h.lanes.l3 + h.tail.first; }
        if (h.last.isValid()) { h.last.what = h.last.what + 1; }
        if (h.kind.what[5:5] == 1) { h.lanes.setInvalid(); }
    }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) { apply { } }
control D(packet_out p, in headers_t h) { apply { p.emit(h); } }

V1Switch(P(), V(), I(), E(), C(), D()) main;
