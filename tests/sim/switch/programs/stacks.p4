// Header stacks, unions, varbit, lookahead, advance, verify, value sets' default, parser errors.
#include <core.p4>
#include <v1model.p4>

error { TooDeep }
header label_h { bit<20> value; bit<3> tc; bit<1> bottom; bit<8> ttl; }
header v4_h { bit<4> version; bit<4> words; bit<16> tag; varbit<320> options; bit<8> after; }
header small_h { bit<8> tag; bit<8> x; }
header large_h { bit<8> tag; bit<24> y; }
header_union body_u { small_h small; large_h large; }
header note_h { bit<8> fault; bit<8> depth; bit<8> last; bit<16> peeked; bit<8> valid; bit<32> first; }
struct headers_t { note_h note; label_h[4] labels; v4_h v4; body_u body; }
struct metadata_t { bit<16> peeked; }

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start { m.peeked = p.lookahead<bit<16>>(); transition labels; }
    state labels {
        p.extract(h.labels.next);
        verify(h.labels.last.ttl != 0, error.TooDeep);
        transition select(h.labels.last.bottom) { 0: labels; 1: after; }
    }
    state after {
        transition select(p.lookahead<bit<4>>()) { 4: v4; 5: skip; 6 .. 9: small; default: large; }
    }
    state v4 {
        p.extract(h.v4, (bit<32>) (p.lookahead<bit<8>>()[3:0]) * 32);
        transition select(h.v4.tag) { 0x8000 &&& 0x8000: large; default: accept; }
    }
    state skip { p.advance(24); transition small; }
    state small { p.extract(h.body.small); transition accept; }
    state large { p.extract(h.body.large); transition accept; }
}
control V(inout headers_t h, inout metadata_t m) { apply { } }
control C(inout headers_t h, inout metadata_t m) { apply { } }
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) { apply { } }

control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    apply {
        h.note.setValid();
        s.egress_spec = 1;
        h.note.peeked = m.peeked;
        if (s.parser_error == error.NoError) { h.note.fault = 1; }
        else if (s.parser_error == error.PacketTooShort) { h.note.fault = 2; }
        else if (s.parser_error == error.StackOutOfBounds) { h.note.fault = 3; }
        else if (s.parser_error == error.TooDeep) { h.note.fault = 4; }
        else if (s.parser_error == error.HeaderTooShort) { h.note.fault = 5; }
        else { h.note.fault = 6; }
        h.note.valid = 3w0 ++ (bit<1>) h.labels[0].isValid() ++ (bit<1>) h.labels[3].isValid() ++ (bit<1>) h.v4.isValid()
            ++ (bit<1>) h.body.small.isValid() ++ (bit<1>) h.body.large.isValid();
        if (h.labels[0].isValid()) {
            h.note.first = h.labels[0].value ++ 12w0;
            if (h.labels[0].tc == 1) { h.labels.push_front(1); h.labels[0].setValid(); h.labels[0].value = 77; h.labels[0].tc = 0; h.labels[0].bottom = 0; h.labels[0].ttl = 9; }
            else if (h.labels[0].tc == 2) { h.labels.pop_front(1); }
            else if (h.labels[0].tc == 3) { h.labels.push_front(2); }
            else if (h.labels[0].tc == 4) { h.labels[2] = h.labels[0]; }
            else if (h.labels[0].tc == 5 && h.body.small.isValid()) { h.body.large.setValid(); h.body.large.tag = 1; h.body.large.y = 2; }
        }
    }
}
control D(packet_out p, in headers_t h) { apply { p.emit(h.note); p.emit(h.labels); p.emit(h.v4); p.emit(h.body); } }

V1Switch(P(), V(), I(), E(), C(), D()) main;
