// Who may touch which slots: only a worker that the controller let in, from its own port and address, with this
// epoch's token, and only in its job's slot range.

const bit<32> WORKER_ADMISSION_SIZE = 8192;

control WorkerAdmission(in headers_t hdr, inout metadata_t meta) {
    ENTRY_COUNTER(admitted)

    // Pool indices are counted here, not slots, and saturate: a pipeline has both numbers in the stage of the lookup, and no
    // entry, not even a wrong one, makes an index wrap.
    action admit(worker_bitmap_t worker_bit, worker_bitmap_t full_mask, bit<8> num_workers, bit<32> epoch,
                 bit<16> pool_base, bit<16> pool_indices, mcast_group_t mcast_group) {
        meta.admission.worker_bit = worker_bit;
        meta.admission.full_mask = full_mask;
        meta.admission.num_workers = num_workers;
        meta.admission.epoch = epoch;
        meta.admission.mcast_group = mcast_group;
        meta.admission.index = pool_base |+| hdr.netsum.pool_index;
        meta.admission.indices_left = pool_indices |-| hdr.netsum.pool_index;
        meta.admission.admitted = true;
        COUNT_ENTRY(admitted)
    }

    action refuse() {
        meta.admission.admitted = false;
    }

    table worker_admission {
        key = {
            meta.ingress_port: exact @name("ingress_port");
            hdr.ipv4.src: exact @name("ipv4_src");
            hdr.netsum.job_id: exact @name("job_id");
            hdr.netsum.worker_id: exact @name("worker_id");
            hdr.netsum.token: exact @name("token");
        }
        actions = {
            admit;
            @defaultonly refuse;
        }
        const default_action = refuse();
        counters = admitted;
        size = WORKER_ADMISSION_SIZE;
    }

    apply {
        worker_admission.apply();
    }
}
