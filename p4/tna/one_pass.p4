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
#define HEADER_ONLY_COPY(id, bit) (id, 1 << bit &&& 1 << bit): parse_header_only;

// Egress parser of a RESULT's copies: it skips the lanes for a worker that needs a header-only RESULT; those do not leave.
parser CopyParser(packet_in packet, inout headers_t hdr, in worker_bitmap_t header_only, in bit<16> replica,
                  inout egress_metadata_t meta) {
    AnswerParser() answer;
    AnswerParser() header_only_answer;

    state start {
        transition select(replica[7:0], header_only[15:0]) {
            HEADER_ONLY_COPY(1, 0) HEADER_ONLY_COPY(2, 1) HEADER_ONLY_COPY(3, 2) HEADER_ONLY_COPY(4, 3)
            HEADER_ONLY_COPY(5, 4) HEADER_ONLY_COPY(6, 5) HEADER_ONLY_COPY(7, 6) HEADER_ONLY_COPY(8, 7)
            HEADER_ONLY_COPY(9, 8) HEADER_ONLY_COPY(10, 9) HEADER_ONLY_COPY(11, 10) HEADER_ONLY_COPY(12, 11)
            HEADER_ONLY_COPY(13, 12) HEADER_ONLY_COPY(14, 13) HEADER_ONLY_COPY(15, 14) HEADER_ONLY_COPY(16, 15)
            default: check_others;
        }
    }

    state check_others {
        transition select(replica[7:0], header_only[31:16]) {
            HEADER_ONLY_COPY(17, 0) HEADER_ONLY_COPY(18, 1) HEADER_ONLY_COPY(19, 2) HEADER_ONLY_COPY(20, 3)
            HEADER_ONLY_COPY(21, 4) HEADER_ONLY_COPY(22, 5) HEADER_ONLY_COPY(23, 6) HEADER_ONLY_COPY(24, 7)
            HEADER_ONLY_COPY(25, 8) HEADER_ONLY_COPY(26, 9) HEADER_ONLY_COPY(27, 10) HEADER_ONLY_COPY(28, 11)
            HEADER_ONLY_COPY(29, 12) HEADER_ONLY_COPY(30, 13) HEADER_ONLY_COPY(31, 14) HEADER_ONLY_COPY(32, 15)
            default: parse_all;
        }
    }

    state parse_all {
        answer.apply(packet, hdr);
        transition accept;
    }

    state parse_header_only {
        header_only_answer.apply(packet, hdr);
        packet.advance((bit<32>) LANES_BYTES * 8);
        meta.is_header_only = true;
        transition accept;
    }
}
