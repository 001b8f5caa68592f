// Answers ICMP echo requests to the switch's own addresses, so that ping works. Fragments are not answered.

const bit<8> ICMP_ECHO_REPLY = 0;
const bit<8> ICMP_ECHO_REQUEST = 8;

control EchoResponder(inout headers_t hdr, inout metadata_t meta) {
    apply {
        if (hdr.icmp.type == ICMP_ECHO_REQUEST && hdr.icmp.code == 0 && !meta.ipv4_checksum_wrong &&
            hdr.ethernet.src[40:40] == 0 && hdr.ipv4.src != hdr.ipv4.dst) {
            hdr.icmp.type = ICMP_ECHO_REPLY;
            hdr.icmp.checksum = checksum_after(hdr.icmp.checksum, ICMP_ECHO_REQUEST ++ 8w0, ICMP_ECHO_REPLY ++ 8w0);
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
