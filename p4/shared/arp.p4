// Answers ARP requests for the switch's own addresses. Any other ARP for them ends here.

control ArpResponder(inout headers_t hdr, inout metadata_t meta) {
    apply {
        if (meta.is_request && hdr.ethernet.src[40:40] == 0) {
            ipv4_address_t own_ip = hdr.arp.target_ip;
            hdr.arp.operation = ARP_REPLY;
            hdr.arp.target_mac = hdr.arp.sender_mac;
            hdr.arp.target_ip = hdr.arp.sender_ip;
            hdr.arp.sender_mac = meta.own_mac;
            hdr.arp.sender_ip = own_ip;
            hdr.ethernet.dst = hdr.ethernet.src;
            hdr.ethernet.src = meta.own_mac;
            meta.egress_port = meta.ingress_port;
            meta.send = SEND_TO_PORT;
        } else {
            meta.send = SEND_NOWHERE;
        }
    }
}
