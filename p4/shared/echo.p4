// Answers ICMP echo requests to the switch's own addresses, so that ping works. Fragments are not answered.

control EchoResponder(inout headers_t hdr, inout metadata_t meta) {
    ChecksumAfterDecrease((ICMP_ECHO_REQUEST - ICMP_ECHO_REPLY) ++ 8w0) checksum_after_type;

    apply {
        if (meta.is_request && !meta.ipv4_checksum_wrong && hdr.ethernet.src[40:40] == 0 &&
            hdr.ipv4.src != hdr.ipv4.dst) {
            hdr.icmp.type = ICMP_ECHO_REPLY;
            checksum_after_type.apply(hdr.icmp.checksum);
            ipv4_address_t own_ip = hdr.ipv4.dst;
            hdr.ipv4.dst = hdr.ipv4.src;
            hdr.ipv4.src = own_ip;
            hdr.ipv4.ttl = INITIAL_TTL;
            hdr.ethernet.dst = hdr.ethernet.src;
            hdr.ethernet.src = meta.own_mac;
            meta.ipv4_is_new = true;
            meta.egress_port = meta.ingress_port;
            meta.send = SEND_TO_PORT;
        } else {
            meta.send = SEND_NOWHERE;
        }
    }
}
