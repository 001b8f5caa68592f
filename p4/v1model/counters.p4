// What became of the packets for the netsum port, per job. Job 0 counts what names no job.

const bit<32> JOB_COUNTERS = 256;

control OutcomeCounters(in headers_t hdr, in metadata_t meta) {
    counter(JOB_COUNTERS, CounterType.packets) contributions; // added to a slot
    counter(JOB_COUNTERS, CounterType.packets) results; // slots completed
    counter(JOB_COUNTERS, CounterType.packets) duplicates_answered;
    counter(JOB_COUNTERS, CounterType.packets) duplicates_dropped;
    counter(JOB_COUNTERS, CounterType.packets) stale;
    counter(JOB_COUNTERS, CounterType.packets) not_admitted;
    counter(JOB_COUNTERS, CounterType.packets) out_of_range;
    counter(JOB_COUNTERS, CounterType.packets) mismatches;
    counter(JOB_COUNTERS, CounterType.packets) malformed;
    counter(JOB_COUNTERS, CounterType.packets) probes;

    apply {
        bit<32> job = 0;
        if (hdr.netsum.isValid() && hdr.netsum.job_id <= MAX_JOB_ID) {
            job = (bit<32>) hdr.netsum.job_id;
        }
        if (meta.outcome == OUTCOME_ADDED) {
            contributions.count(job);
        } else if (meta.outcome == OUTCOME_COMPLETED) {
            contributions.count(job);
            results.count(job);
        } else if (meta.outcome == OUTCOME_DUPLICATE_ANSWERED) {
            duplicates_answered.count(job);
        } else if (meta.outcome == OUTCOME_DUPLICATE_DROPPED) {
            duplicates_dropped.count(job);
        } else if (meta.outcome == OUTCOME_STALE) {
            stale.count(job);
        } else if (meta.outcome == OUTCOME_MISMATCH) {
            mismatches.count(job);
        } else if (meta.outcome == OUTCOME_PROBED) {
            probes.count(job);
        } else if (meta.outcome == OUTCOME_OUT_OF_RANGE) {
            out_of_range.count(job);
        } else if (meta.outcome == OUTCOME_NOT_ADMITTED) {
            not_admitted.count(job);
        } else {
            malformed.count(job);
        }
    }
}
