// Registers narrow and wide, counters, meters, an action selector, digest, random, assert.
#include <core.p4>
#include <v1model.p4>

header in_h { bit<8> what; bit<8> index; bit<32> value; bit<96> wide; bit<16> flow; }
header out_h { bit<32> old; bit<96> old_wide; bit<8> old5; bit<8> color; bit<8> direct_color; bit<8> chosen; bit<16> random; bit<8> pad; }
struct headers_t { in_h i; out_h o; }
struct metadata_t { bit<2> color; bit<2> direct_color; bit<5> five; }
struct seen_t { bit<32> value; bit<96> wide; bit<8> index; }

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start { p.extract(h.i); transition accept; }
}
control V(inout headers_t h, inout metadata_t m) { apply { } }
control C(inout headers_t h, inout metadata_t m) { apply { } }
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) { apply { } }

control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    register<bit<32>>(256) narrow;
    register<bit<96>>(256) wide;
    register<bit<5>>(256) five;
    counter(256, CounterType.packets_and_bytes) seen;
    meter(256, MeterType.packets) policer;
    direct_meter<bit<2>>(MeterType.bytes) direct;
    action_selector(HashAlgorithm.crc16, 64, 16) selector;
    action choose(bit<8> v) { h.o.chosen = v; }
    action metered() { direct.read(m.direct_color); }
    table t_select { key = { h.i.what: exact; h.i.flow: selector; } actions = { choose; NoAction; } implementation = selector; size = 64; }
    table t_meter { key = { h.i.index: exact; } actions = { metered; NoAction; } meters = direct; size = 64; default_action = NoAction(); }
    apply {
        h.o.setValid();
        s.egress_spec = 1;
        bit<32> at = (bit<32>) h.i.index;
        narrow.read(h.o.old, at);
        wide.read(h.o.old_wide, at);
        five.read(m.five, at);
        h.o.old5 = (bit<8>) m.five;
        narrow.write(at, h.o.old + h.i.value);
        wide.write(at, h.o.old_wide ^ h.i.wide);
        five.write(at, m.five + 7);
        seen.count(at);
        policer.execute_meter(at, m.color);
        t_meter.apply();
        t_select.apply();
        h.o.color = (bit<8>) m.color;
        h.o.direct_color = (bit<8>) m.direct_color;
        if (h.i.what == 7) { digest<seen_t>(1, { h.i.value, h.i.wide, h.i.index }); }
        if (h.i.what == 8) { random(h.o.random, 16w10, 16w20); }
        if (h.i.what == 9) { log_msg("value {}", { h.i.value }); assert(h.i.value != 0xdead); }
    }
}
control D(packet_out p, in headers_t h) { apply { p.emit(h.o); p.emit(h.i); } }

V1Switch(P(), V(), I(), E(), C(), D()) main;
