// Every hash, over inputs that do not fill whole bytes and over a header that may be absent; checksums with payload.
#include <core.p4>
#include <v1model.p4>

header in_h { bit<3> a; bit<13> b; bit<32> c; bit<48> d; bit<16> sum; bit<8> more; }
header more_h { bit<20> x; bit<12> y; }
header out_h {
    bit<32> crc32; bit<16> crc16; bit<16> csum16; bit<16> xor16; bit<64> identity; bit<16> based; bit<32> short32; bit<8> bad;
    bit<16> custom16; bit<32> custom32;
}
struct headers_t { in_h i; more_h m; out_h o; }
struct metadata_t { bit<16> sum; }

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start { p.extract(h.i); transition select(h.i.more) { 0 .. 99: more; default: accept; } }
    state more { p.extract(h.m); transition accept; }
}
control V(inout headers_t h, inout metadata_t m) {
    apply { verify_checksum(h.i.more[0:0] == 0, { h.i.a, h.i.b, h.i.c, h.i.d }, h.i.sum, HashAlgorithm.csum16); }
}
control C(inout headers_t h, inout metadata_t m) {
    apply { update_checksum_with_payload(h.i.isValid(), { h.i.a, h.i.b, h.i.c, h.m.x, h.m.y, 8w7 }, h.i.sum, HashAlgorithm.csum16); }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) { apply { } }
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    apply {
        h.o.setValid();
        hash(h.o.crc32, HashAlgorithm.crc32, 32w0, { h.i.a, h.i.b, h.i.c, h.i.d }, 64w0x100000000);
        hash(h.o.crc16, HashAlgorithm.crc16, 16w0, { h.i.a, h.i.b, h.i.c, h.i.d }, 32w0x10000);
        hash(h.o.csum16, HashAlgorithm.csum16, 16w0, { h.i.a, h.i.b, h.i.c, h.i.d, h.i.more }, 32w0x10000);
        hash(h.o.xor16, HashAlgorithm.xor16, 16w0, { h.i.a, h.i.b, h.i.c, h.i.d, h.i.more }, 32w0x10000);
        hash(h.o.identity, HashAlgorithm.identity, 64w0, { h.i.b, h.i.c, h.i.a }, 64w0x7fffffffffffffff);
        if (h.m.isValid()) { hash(h.o.based, HashAlgorithm.crc16, 16w100, { h.i.b, h.m.x, h.m.y }, 16w77); }
        hash(h.o.short32, HashAlgorithm.crc32, 32w0, { h.i.a, h.i.c[9:0] }, 64w0x100000000);
        hash(h.o.custom16, HashAlgorithm.crc16_custom, 16w0, { h.i.c, h.i.d }, 32w0x10000);
        hash(h.o.custom32, HashAlgorithm.crc32_custom, 32w0, { h.i.c, h.i.d }, 64w0x100000000);
        h.o.bad = (bit<8>) s.checksum_error;
        s.egress_spec = 1;
    }
}
control D(packet_out p, in headers_t h) { apply { p.emit(h.o); p.emit(h.i); p.emit(h.m); } }

V1Switch(P(), V(), I(), E(), C(), D()) main;
