// Metadata that a packet takes from ingress to egress, and the headers of all packets in the order in which they leave.

// How a packet leaves ingress, for egress to know.
const bit<8> LEAVING_AS_IT_IS = 0;
const bit<8> LEAVING_TO_OTHERS = 1; // not to where it came from
const bit<8> LEAVING_NEW_IPV4 = 2; // its IPv4 checksum must be computed
const bit<8> LEAVING_ANSWER_TO_ONE = 3; // a RESULT or STATUS
const bit<8> LEAVING_ANSWER_TO_GROUP = 4;
const bit<8> LEAVING_ANSWER_TO_ONE_OF_GROUP = 5; // in a tree, to the worker of the group that is named in the header
const bit<8> LEAVING_LANES_TO_GROUP = 6; // a RESULT with lanes

header bridge_h {
    bit<8> leaving;
    @padding bit<7> pad;
    port_t ingress_port;
}

// Behind it, of a RESULT with lanes that goes to a group.
header copies_h {
    worker_bitmap_t header_only; // whose copies are header-only
}

struct egress_metadata_t {
    bit<16> replica; // 0: the packet is no copy
    bool is_header_only; // the parser has left them out
}

// For an answer: the fields that egress changes.
parser AnswerParser(packet_in packet, inout headers_t hdr) {
    state start {
        packet.extract(hdr.ethernet);
        packet.extract(hdr.ipv4);
        packet.extract(hdr.udp);
        packet.extract(hdr.netsum);
        transition accept;
    }
}

control FrameDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.arp);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.icmp);
        packet.emit(hdr.udp);
        packet.emit(hdr.netsum);
        packet.emit(hdr.status);
        packet.emit(hdr.lanes);
    }
}
