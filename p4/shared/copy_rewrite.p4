// Addresses each copy of an answer to its worker. A copy for a worker that is not in the table is dropped.

const bit<32> COPY_REWRITE_SIZE = 8192;

control CopyRewrite(inout headers_t hdr, in bit<16> replica, out bool addressed) {
    action rewrite(mac_t dst_mac, ipv4_address_t dst_ip, bit<16> dst_port) {
        hdr.ethernet.dst = dst_mac;
        hdr.ipv4.dst = dst_ip;
        hdr.udp.dst_port = dst_port;
        addressed = true;
    }

    action unknown_worker() {
        addressed = false;
    }

    table copy_rewrite {
        key = {
            hdr.netsum.job_id: exact @name("job_id");
            hdr.netsum.worker_id: exact @name("worker_id");
        }
        actions = {
            rewrite;
            @defaultonly unknown_worker;
        }
        const default_action = unknown_worker();
        size = COPY_REWRITE_SIZE;
    }

    apply {
        // Replicas are numbered worker_id + 1. An answer to one worker is no replica: it goes to the sender.
        if (replica != 0) {
            hdr.netsum.worker_id = replica[7:0] - 1;
        }
        copy_rewrite.apply();
    }
}
