// Packets that would go round for ever, and a parser that would.
#include <core.p4>
#include <v1model.p4>

header ask_h { bit<8> what; }
struct headers_t { ask_h ask; ask_h seen; }
struct metadata_t { @field_list(1) bit<32> rounds; }

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start { p.extract(h.ask); transition select(h.ask.what) { 5: turn; default: accept; } }
    state turn { transition select(h.ask.what) { 6: accept; default: turn_back; } }
    state turn_back { transition turn; }
}
control V(inout headers_t h, inout metadata_t m) { apply { } }
control C(inout headers_t h, inout metadata_t m) { apply { } }
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    apply {
        s.egress_spec = 1;
        if (h.ask.what == 1) { resubmit_preserving_field_list(1); }
        if (h.ask.what == 4) { s.mcast_grp = 9; }
        if (h.ask.what == 5 && s.parser_error == error.ParserTimeout) { s.egress_spec = 2; }
    }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    apply {
        if (h.ask.what == 0) { recirculate_preserving_field_list(1); }
        if (h.ask.what == 2) { clone(CloneType.E2E, 1); mark_to_drop(s); }
        if (h.ask.what == 3) { h.seen.setValid(); h.seen.what = 3; recirculate_preserving_field_list(1); }
    }
}
control D(packet_out p, in headers_t h) { apply { p.emit(h.ask); p.emit(h.seen); } }

V1Switch(P(), V(), I(), E(), C(), D()) main;
