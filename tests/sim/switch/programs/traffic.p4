// What the traffic manager does, asked for by the first byte; each copy says where it has been.
#include <core.p4>
#include <v1model.p4>

header ask_h { bit<8> what; bit<8> port; bit<16> group; bit<8> rounds; bit<8> cut; }
header trail_h { bit<8> instance; bit<8> copy_instance; bit<16> rid; bit<16> in_port; bit<16> out_port; bit<32> size; bit<32> kept; bit<32> lost; bit<8> fault; }
struct headers_t { ask_h ask; trail_h trail; }
struct metadata_t { @field_list(1) bit<32> kept; bit<32> lost; @field_list(1) bit<8> rounds; }

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start { p.extract(h.ask); transition accept; }
}
control V(inout headers_t h, inout metadata_t m) { apply { } }
control C(inout headers_t h, inout metadata_t m) { apply { } }

control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    apply {
        s.egress_spec = (bit<9>) h.ask.port & 7;
        if (s.parser_error != error.NoError) { m.lost = 99; }
        if (h.ask.what == 1) { s.mcast_grp = h.ask.group & 3; }
        if (h.ask.what == 2) { m.kept = 0x1234; m.lost = 0x5678; clone_preserving_field_list(CloneType.I2E, 5, 1); }
        if (h.ask.what == 3 && m.rounds < 3) { m.kept = m.kept + 1; m.rounds = m.rounds + 1; m.lost = 7; resubmit_preserving_field_list(1); }
        if (h.ask.what == 4) { mark_to_drop(s); }
        if (h.ask.what == 5) { truncate((bit<32>) h.ask.cut); }
        if (h.ask.what == 6) { s.mcast_grp = 1; clone(CloneType.I2E, 6); }
        if (h.ask.what == 7) { exit; }
        m.lost = m.lost + 1;
    }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    apply {
        if (h.ask.what == 8 && s.instance_type == 0) { m.kept = 0x77; clone_preserving_field_list(CloneType.E2E, 5, 1); h.ask.cut = 3; }
        if (h.ask.what == 9 && h.ask.rounds[1:0] != 0) {
            h.ask.rounds = h.ask.rounds - 1; m.kept = m.kept + 0x100; m.lost = 5;
            recirculate_preserving_field_list(1);
        } else if (h.ask.what == 10) {
            mark_to_drop(s);
        } else {
            h.trail.setValid();
            h.trail.instance = (bit<8>) s.instance_type;
            h.trail.rid = s.egress_rid;
            h.trail.in_port = (bit<16>) s.ingress_port;
            h.trail.out_port = (bit<16>) s.egress_port;
            h.trail.size = s.packet_length;
            h.trail.kept = m.kept;
            h.trail.lost = m.lost;
            h.trail.fault = (bit<8>) (bit<1>) (s.parser_error != error.NoError);
        }
    }
}
control D(packet_out p, in headers_t h) { apply { p.emit(h.trail); p.emit(h.ask); } }

V1Switch(P(), V(), I(), E(), C(), D()) main;
