// Packets that go through ingress once.

struct target_headers_t {
    bridge_h bridge;
    headers_t frame;
}

parser ArrivingParser(packet_in packet, out target_headers_t hdr, inout metadata_t meta, in port_t ingress_port) {
    PacketParser() frame;

    state start {
        meta.ingress_port = ingress_port;
        frame.apply(packet, hdr.frame, meta, ingress_port);
        transition accept;
    }
}

control LeavingDeparser(packet_out packet, in target_headers_t hdr) {
    FrameDeparser() frame;

    apply {
        packet.emit(hdr.bridge);
        frame.apply(packet, hdr.frame);
    }
}
