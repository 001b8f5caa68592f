// Answers ARP requests for the switch's own addresses. Any other ARP for them ends here.

const bit<16> ARP_REQUEST = 1;
const bit<16> ARP_REPLY = 2;

control ArpResponder(inout headers_t hdr, inout metadata_t meta) {
    apply {
        if (hdr.arp.operation == ARP_REQUEST && hdr.arp.hardware_type == 1 && hdr.arp.protocol_type == ETHERTYPE_IPV4 &&
            hdr.arp.hardware_bytes == 6 && hdr.arp.protocol_bytes == 4 && hdr.ethernet.src[40:40] == 0) {
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
