// Every operator at odd widths, one result field each.
#include <core.p4>
#include <v1model.p4>

header operands_h {
    bit<7> a7; bit<1> flag; bit<33> a33; bit<33> b33; bit<6> shift; bit<8> a8; bit<8> b8;
    bit<128> a128; bit<128> b128; int<13> s13; int<13> t13; bit<6> pad; int<64> s64; int<64> t64; bit<16> a16;
}

header results_h {
    bit<33> add33; bit<7> pad0;
    bit<33> sub33; bit<7> pad1;
    bit<33> mul33; bit<7> pad2;
    bit<33> shl33; bit<7> pad3;
    bit<33> shr33; bit<7> pad4;
    bit<33> sat33; bit<7> pad5;
    bit<33> satsub33; bit<7> pad6;
    bit<128> add128; bit<128> mul128; bit<128> shr128; bit<128> xor128; bit<128> not128;
    int<13> sadd13; bit<3> pad7;
    int<13> ssub13; bit<3> pad8;
    int<13> sshr13; bit<3> pad9;
    int<13> smul13; bit<3> pad10;
    int<64> ssat64; int<64> ssatsub64; int<64> widened;
    bit<8> compare; bit<8> scompare; bit<8> mux; bit<8> slice; bit<8> cast8;
    bit<24> concat; bit<40> wide; bit<8> neg8; bit<8> logic;
}

struct headers_t { operands_h i; results_h o; }
struct metadata_t { }

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start { p.extract(h.i); transition accept; }
}
control V(inout headers_t h, inout metadata_t m) { apply { } }
control C(inout headers_t h, inout metadata_t m) { apply { } }
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) { apply { } }

control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    action compute() {
        h.o.setValid();
        h.o.add33 = h.i.a33 + h.i.b33;
        h.o.sub33 = h.i.a33 - h.i.b33;
        h.o.mul33 = h.i.a33 * h.i.b33;
        h.o.shl33 = h.i.a33 << h.i.shift;
        h.o.shr33 = h.i.a33 >> h.i.shift;
        h.o.sat33 = h.i.a33 |+| h.i.b33;
        h.o.satsub33 = h.i.a33 |-| h.i.b33;
        h.o.add128 = h.i.a128 + h.i.b128;
        h.o.mul128 = h.i.a128 * h.i.b128;
        h.o.shr128 = h.i.a128 >> h.i.a7;
        h.o.xor128 = (h.i.a128 ^ h.i.b128) & (h.i.a128 | 0xffff);
        h.o.not128 = ~h.i.a128;
        h.o.sadd13 = h.i.s13 + h.i.t13;
        h.o.ssub13 = h.i.s13 - h.i.t13;
        h.o.sshr13 = h.i.s13 >> h.i.shift;
        h.o.smul13 = h.i.s13 * h.i.t13;
        h.o.ssat64 = h.i.s64 |+| h.i.t64;
        h.o.ssatsub64 = h.i.s64 |-| h.i.t64;
        h.o.widened = (int<64>) h.i.s13;
        h.o.compare = (bit<1>) (h.i.a33 < h.i.b33) ++ (bit<1>) (h.i.a33 == h.i.b33) ++ (bit<1>) (h.i.a128 >= h.i.b128)
            ++ (bit<1>) (h.i.a8 != h.i.b8) ++ 4w5;
        h.o.scompare = (bit<1>) (h.i.s13 < h.i.t13) ++ (bit<1>) (h.i.s64 > h.i.t64) ++ (bit<1>) (h.i.s13 <= 0) ++ 5w1;
        h.o.mux = h.i.flag == 1 ? h.i.a8 : h.i.b8 - 1;
        h.o.slice = h.i.a33[20:13];
        h.o.cast8 = (bit<8>) h.i.a7 + (bit<8>) h.i.a16;
        h.o.concat = h.i.a8 ++ h.i.a16;
        h.o.wide = (bit<40>) h.i.a33;
        h.o.wide[7:0] = h.i.b8;
        h.o.neg8 = -h.i.a8;
    }
    apply {
        if (h.i.isValid()) { compute(); }
        bool both = h.i.isValid() && h.i.a8 > 10 && (h.i.b8 < 200 || !(h.i.flag == 1));
        h.o.logic = both ? 8w1 : 0;
        h.i.setInvalid();
        s.egress_spec = 1;
    }
}
control D(packet_out p, in headers_t h) { apply { p.emit(h.i); p.emit(h.o); } }

V1Switch(P(), V(), I(), E(), C(), D()) main;
