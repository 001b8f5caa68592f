// The slots of a switch without a tree, all lanes in one pass.

control Reduction(inout target_headers_t hdr, inout metadata_t meta, in job_t job, inout worker_bitmap_t header_only) {
    Slot() slot;
    Answer() answer;
    OutcomeCounters() counters;
    QuorumCounters() quorum_counters;

    apply {
        slot.apply(hdr.frame, meta, job, false, header_only);
        if (meta.is_answer) {
            answer.apply(hdr.frame, meta);
        }
        counters.apply(hdr.frame, meta);
        quorum_counters.apply(hdr.frame, meta);
    }
}
