// Slots that a quorum completes: a number of contributions, whichever workers they are from. A packet says by the field `quorum`
// that it is for such a slot, how many it takes is the job's; late contributions are counted and not added. Which workers' are in
// the RESULT stands behind its header. docs/protocol.md#quorums says why this is safe.

const outcome_t OUTCOME_LATE = 14; // the quorum was complete without it

struct quorum_t {
    bit<8> workers; // number of contributions that complete the slot; 0: those of all workers
    worker_bitmap_t added; // whose the slot holds
}

control JobQuorum(in headers_t hdr, inout quorum_t quorum) {
    action set_quorum(bit<8> workers) {
        quorum.workers = workers;
    }

    action set_no_quorum() {
        quorum.workers = 0;
    }

    table job_quorum {
        key = {
            hdr.netsum.job_id: exact @name("job_id");
        }
        actions = {
            set_quorum;
            @defaultonly set_no_quorum;
        }
        const default_action = set_no_quorum();
        size = 256;
    }

    apply {
        job_quorum.apply();
    }
}

control QuorumCounters(in headers_t hdr, in metadata_t meta) {
    JOB_COUNTER(late) // contributions to a slot whose quorum was complete without them

    apply {
        if (meta.outcome == OUTCOME_LATE) {
            late.count((job_index_t) hdr.netsum.job_id); // The packet was admitted, so there is a counter for its job.
        }
    }
}
