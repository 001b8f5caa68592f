// Everything that is not for the switch itself: a plain L2 switch and IPv4 router.

const bit<32> L2_FORWARD_SIZE = 4096;
const bit<32> L3_ROUTE_SIZE = 1024;

control Forward(inout headers_t hdr, inout metadata_t meta) {
    ChecksumAfterDecrease(8w1 ++ 8w0) checksum_after_ttl;

    action forward(port_t port) {
        meta.egress_port = port;
        meta.send = SEND_TO_PORT;
    }

    action flood(mcast_group_t mcast_group) {
        meta.mcast_group = mcast_group;
        meta.send = SEND_TO_OTHERS;
    }

    action drop() {
        meta.send = SEND_NOWHERE;
    }

    // The default action, what to do with unknown stations, is the controller's to choose.
    table l2_forward {
        key = {
            hdr.ethernet.dst: exact @name("dst");
        }
        actions = {
            forward;
            flood;
            drop;
        }
        default_action = drop();
        size = L2_FORWARD_SIZE;
    }

    action route(port_t port, mac_t src_mac, mac_t dst_mac) {
        hdr.ethernet.src = src_mac;
        hdr.ethernet.dst = dst_mac;
        meta.egress_port = port;
        meta.send = SEND_TO_PORT;
    }

    action no_route() {}

    table l3_route {
        key = {
            hdr.ipv4.dst: lpm @name("dst");
        }
        actions = {
            route;
            @defaultonly no_route;
        }
        const default_action = no_route();
        size = L3_ROUTE_SIZE;
    }

    apply {
        if (l2_forward.apply().hit) {
            if (meta.send == SEND_TO_PORT && meta.egress_port == meta.ingress_port) {
                drop(); // the station is where the frame came from
            }
        } else if (hdr.ipv4.isValid() && hdr.ethernet.dst[40:40] == 0) {
            // A station that is not a neighbour: the frame may be meant for the router.
            if (hdr.ipv4.ttl > 1 && !meta.ipv4_checksum_wrong) {
                if (l3_route.apply().hit) {
                    hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
                    checksum_after_ttl.apply(hdr.ipv4.checksum);
                }
            }
        }
    }
}
