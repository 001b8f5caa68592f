// Who may touch which slots: only a worker that the controller let in, from its own port and address, with this
// epoch's token, and only in its job's slot range.

const bit<32> WORKER_ADMISSION_SIZE = 8192;

control WorkerAdmission(in headers_t hdr, inout metadata_t meta) {
    bit<32> pool_base = 0;
    bit<32> pool_indices = 0;

    action admit(worker_bitmap_t worker_bit, worker_bitmap_t full_mask, bit<8> num_workers, bit<32> epoch,
                 bit<16> slot_base, bit<16> slot_count, mcast_group_t mcast_group) {
        meta.admission.worker_bit = worker_bit;
        meta.admission.full_mask = full_mask;
        meta.admission.num_workers = num_workers;
        meta.admission.epoch = epoch;
        meta.admission.mcast_group = mcast_group;
        pool_base = (bit<32>) slot_base << 1;
        pool_indices = (bit<32>) slot_count << 1;
    }

    action refuse() {
        meta.outcome = OUTCOME_NOT_ADMITTED;
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
        size = WORKER_ADMISSION_SIZE;
    }

    apply {
        if (worker_admission.apply().hit) {
            bit<32> relative = (bit<32>) hdr.netsum.pool_index;
            meta.admission.index = pool_base + relative;
            // The second comparison holds whatever the controller wrote.
            if (relative >= pool_indices || meta.admission.index >= POOL_INDICES) {
                meta.outcome = OUTCOME_OUT_OF_RANGE;
            }
        }
    }
}
