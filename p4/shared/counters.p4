// Outcomes of the packets for the netsum port, per job. Job 0 counts packets that name no job.

const bit<32> JOB_COUNTERS = 256;

control OutcomeCounters(in headers_t hdr, in metadata_t meta) {
    JOB_COUNTER(contributions) // added to a slot
    JOB_COUNTER(results) // slots completed
    JOB_COUNTER(duplicates_answered)
    JOB_COUNTER(duplicates_dropped)
    JOB_COUNTER(stale)
    JOB_COUNTER(not_admitted)
    JOB_COUNTER(out_of_range)
    JOB_COUNTER(mismatches)
    JOB_COUNTER(malformed)
    JOB_COUNTER(probes)

    apply {
        job_index_t job = 0;
        if (hdr.netsum.isValid() && hdr.netsum.job_id <= MAX_JOB_ID) {
            job = (job_index_t) hdr.netsum.job_id;
        }
        // Each counter is named once: a pipeline has one place for it. No `else`: it may stand in any stage then.
        if (meta.outcome == OUTCOME_ADDED || meta.outcome == OUTCOME_COMPLETED) {
            contributions.count(job);
        }
        if (meta.outcome == OUTCOME_COMPLETED) {
            results.count(job);
        }
        if (meta.outcome == OUTCOME_DUPLICATE_ANSWERED) {
            duplicates_answered.count(job);
        }
        if (meta.outcome == OUTCOME_DUPLICATE_DROPPED) {
            duplicates_dropped.count(job);
        }
        if (meta.outcome == OUTCOME_STALE) {
            stale.count(job);
        }
        if (meta.outcome == OUTCOME_MISMATCH) {
            mismatches.count(job);
        }
        if (meta.outcome == OUTCOME_PROBED) {
            probes.count(job);
        }
        if (meta.outcome == OUTCOME_OUT_OF_RANGE) {
            out_of_range.count(job);
        }
        if (meta.outcome == OUTCOME_NOT_ADMITTED) {
            not_admitted.count(job);
        }
        if (meta.outcome == OUTCOME_MALFORMED) {
            malformed.count(job);
        }
    }
}
