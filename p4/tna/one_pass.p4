// Packets that go through ingress once.

struct target_headers_t {
    bridge_h bridge;
    copies_h copies;
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
        packet.emit(hdr.copies);
        frame.apply(packet, hdr.frame);
    }
}

// Replicas are numbered worker_id + 1.
#define HEADER_ALONE(id, bit) (id, 1 << bit &&& 1 << bit): parse_header_alone;

// Egress parser of a RESULT's copies: it skips the lanes for a worker that needs the header alone; skipped bytes do not leave.
parser CopyParser(packet_in packet, inout headers_t hdr, in worker_bitmap_t header_back, in bit<16> replica,
                  inout egress_metadata_t meta) {
    AnswerParser() answer;
    AnswerParser() header_alone;

    state start {
        transition select(replica[7:0], header_back[15:0]) {
            HEADER_ALONE(1, 0) HEADER_ALONE(2, 1) HEADER_ALONE(3, 2) HEADER_ALONE(4, 3)
            HEADER_ALONE(5, 4) HEADER_ALONE(6, 5) HEADER_ALONE(7, 6) HEADER_ALONE(8, 7)
            HEADER_ALONE(9, 8) HEADER_ALONE(10, 9) HEADER_ALONE(11, 10) HEADER_ALONE(12, 11)
            HEADER_ALONE(13, 12) HEADER_ALONE(14, 13) HEADER_ALONE(15, 14) HEADER_ALONE(16, 15)
            default: check_others;
        }
    }

    state check_others {
        transition select(replica[7:0], header_back[31:16]) {
            HEADER_ALONE(17, 0) HEADER_ALONE(18, 1) HEADER_ALONE(19, 2) HEADER_ALONE(20, 3)
            HEADER_ALONE(21, 4) HEADER_ALONE(22, 5) HEADER_ALONE(23, 6) HEADER_ALONE(24, 7)
            HEADER_ALONE(25, 8) HEADER_ALONE(26, 9) HEADER_ALONE(27, 10) HEADER_ALONE(28, 11)
            HEADER_ALONE(29, 12) HEADER_ALONE(30, 13) HEADER_ALONE(31, 14) HEADER_ALONE(32, 15)
            default: parse_all;
        }
    }

    state parse_all {
        answer.apply(packet, hdr);
        transition accept;
    }

    state parse_header_alone {
        header_alone.apply(packet, hdr);
        packet.advance((bit<32>) LANES_BYTES * 8);
        meta.without_lanes = true;
        transition accept;
    }
}
