// Outcome of the packet: the first row that fits. It also decides the headers of an answer.

// `rightful`: the packet's kind is one that its sender, a worker or the parent, may send.
control Outcome(inout headers_t hdr, inout metadata_t meta, in bool rightful, in bit<1> reached, in job_t job,
                in finding_t found, inout bool goes_up) {
    action drop_after(outcome_t outcome) {
        meta.outcome = outcome;
    }

    action answer_result(outcome_t outcome) {
        meta.outcome = outcome;
        meta.is_answer = true;
    }

    action answer_result_without_lanes(outcome_t outcome) {
        meta.outcome = outcome;
        meta.is_answer = true;
        hdr.lanes.setInvalid();
    }

    action answer_status(outcome_t outcome) {
        meta.outcome = outcome;
        meta.is_answer = true;
        hdr.status.setValid();
    }

    action send_up(outcome_t outcome) {
        meta.outcome = outcome;
        goes_up = true;
    }

    action send_up_without_lanes(outcome_t outcome) {
        meta.outcome = outcome;
        goes_up = true;
        hdr.lanes.setInvalid();
    }

    // One child speaks for all to the parent, or each lost packet there would cost one from every child.
    table slot_outcome {
        key = {
            meta.well_formed: ternary;
            rightful: ternary @name("rightful");
            reached: ternary @name("reached");
            hdr.netsum.kind: ternary;
            found.current: ternary;
            found.newer: ternary;
            found.asks_the_same: ternary;
            found.agrees: ternary;
            found.full: ternary;
            found.marks: ternary;
            found.mine: ternary;
            found.with_lanes: ternary;
            job.parent.present: ternary @name("has_parent");
            hdr.netsum.flags: ternary;
            hdr.netsum.quorum: ternary;
            job.quorum.workers: ternary @name("quorum_workers");
        }
        actions = {
            drop_after;
            answer_result;
            answer_result_without_lanes;
            answer_status;
            send_up;
            send_up_without_lanes;
        }
        const default_action = drop_after(OUTCOME_MALFORMED);
        const entries = {
            (false, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _): drop_after(OUTCOME_MALFORMED);
            (true, false, _, KIND_RESULT, _, _, _, _, _, _, _, _, _, _, _, _): drop_after(OUTCOME_MALFORMED);
            (true, false, _, KIND_STATUS, _, _, _, _, _, _, _, _, _, _, _, _): drop_after(OUTCOME_MALFORMED);
            (true, false, _, _, _, _, _, _, _, _, _, _, _, _, _, _): drop_after(OUTCOME_NOT_ADMITTED);
            (true, true, 0, _, _, _, _, _, _, _, _, _, _, _, _, _): drop_after(OUTCOME_OUT_OF_RANGE);
            (true, true, 1, KIND_STATUS, _, _, _, _, _, _, _, _, _, _, _, _): answer_status(OUTCOME_STATUS_PASSED_DOWN);
            (true, true, 1, _, _, _, _, _, _, _, _, _, _, _, 1, 0): drop_after(OUTCOME_NOT_ADMITTED);
            // For a RESULT, `mine` says whether the slot took it.
            (true, true, 1, KIND_RESULT, _, _, 1, _, _, MARK_FINAL &&& MARK_FINAL, 0, _, _, _, _, _): drop_after(OUTCOME_DUPLICATE_DROPPED);
            (true, true, 1, KIND_RESULT, _, _, _, _, _, _, 0, _, _, _, _, _): drop_after(OUTCOME_STALE);
            (true, true, 1, KIND_RESULT, _, _, _, _, _, _, _, 0, _, _, _, _): answer_result_without_lanes(OUTCOME_RESULT_TAKEN);
            (true, true, 1, KIND_RESULT, _, _, _, _, _, _, _, _, _, _, _, _): answer_result(OUTCOME_RESULT_TAKEN);
            // A PROBE goes as far as the contribution went: `full` counts this worker's bit in, `mine` says that it is set.
            (true, true, 1, KIND_PROBE, 1, 0, 0, _, _, _, _, _, _, _, _, _): answer_status(OUTCOME_MISMATCH);
            (true, true, 1, KIND_PROBE, _, _, 1, _, 1, _, 0, _, _, _, _, _): answer_status(OUTCOME_PROBED);
            (true, true, 1, KIND_PROBE, _, _, 1, _, 1, 0 &&& MARK_FINAL, _, _, true, _, _, _): send_up_without_lanes(OUTCOME_PROBED);
            (true, true, 1, KIND_PROBE, _, _, _, _, _, _, _, _, _, _, _, _): answer_status(OUTCOME_PROBED);
            (true, true, 1, _, 0, _, _, _, _, _, _, _, _, _, _, _): drop_after(OUTCOME_STALE);
            (true, true, 1, _, 1, _, _, 0, _, _, _, _, _, _, _, _): answer_status(OUTCOME_MISMATCH);
            // A quorum's, also in a tree this switch's alone: marks count the missing ones. Its RESULT has the header of a STATUS.
            (true, true, 1, _, 1, 1, _, 1, _, MISSING_NONE, _, _, _, _, 1, _): answer_status(OUTCOME_COMPLETED);
            (true, true, 1, _, 1, 1, _, 1, _, _, _, _, _, _, 1, _): drop_after(OUTCOME_ADDED);
            (true, true, 1, _, 1, 0, _, 1, _, MISSING_NONE, 0, _, _, _, 1, _): answer_status(OUTCOME_LATE);
            (true, true, 1, _, 1, 0, _, 1, _, MISSING_ONE, 0, _, _, _, 1, _): answer_status(OUTCOME_COMPLETED);
            (true, true, 1, _, 1, 0, _, 1, _, _, 0, _, _, _, 1, _): drop_after(OUTCOME_ADDED);
            (true, true, 1, _, 1, 0, _, 1, _, MISSING_NONE, _, _, _, _, 1, _): answer_status(OUTCOME_DUPLICATE_ANSWERED);
            (true, true, 1, _, 1, 0, _, 1, _, _, _, _, _, _, 1, _): drop_after(OUTCOME_DUPLICATE_DROPPED);
            (true, true, 1, _, 1, _, _, 1, 0, _, 0, _, _, _, _, _): drop_after(OUTCOME_ADDED);
            (true, true, 1, _, 1, _, _, 1, 0, _, _, _, _, _, _, _): drop_after(OUTCOME_DUPLICATE_DROPPED);
            // Full by this contribution.
            (true, true, 1, _, 1, _, _, 1, 1, 0 &&& MARK_LANES, 0, _, true, _, _, _): send_up_without_lanes(OUTCOME_ADDED);
            (true, true, 1, _, 1, _, _, 1, 1, _, 0, _, true, _, _, _): send_up(OUTCOME_ADDED);
            (true, true, 1, _, 1, _, _, 1, 1, 0 &&& MARK_LANES, 0, _, _, _, _, _): answer_result_without_lanes(OUTCOME_COMPLETED);
            (true, true, 1, _, 1, _, _, 1, 1, _, 0, _, _, _, _, _): answer_result(OUTCOME_COMPLETED);
            // Full before, and the parent has not answered. The contents of a slot without lanes are neutral.
            (true, true, 1, _, 1, _, _, 1, 1, 0, 1, 0, true, _, _, _): send_up_without_lanes(OUTCOME_DUPLICATE_PASSED_UP);
            (true, true, 1, _, 1, _, _, 1, 1, 0 &&& MARK_FINAL, 1, _, true, _, _, _): send_up(OUTCOME_DUPLICATE_PASSED_UP);
            (true, true, 1, _, 1, _, _, 1, 1, 0 &&& MARK_FINAL, _, _, true, _, _, _): drop_after(OUTCOME_DUPLICATE_DROPPED);
            (true, true, 1, _, 1, _, _, 1, 1, 0 &&& MARK_LANES, _, _, _, _, _, _): answer_result_without_lanes(OUTCOME_DUPLICATE_ANSWERED);
            (true, true, 1, _, 1, _, _, 1, 1, _, _, _, _, HAS_HEADER_ONLY, _, _): answer_result_without_lanes(OUTCOME_DUPLICATE_ANSWERED);
            (true, true, 1, _, 1, _, _, 1, 1, _, _, _, _, _, _, _): answer_result(OUTCOME_DUPLICATE_ANSWERED);
        }
    }

    apply {
        slot_outcome.apply();
    }
}
