// What became of a packet in a switch of a tree: a part of `Slot` (slot.p4), in place of the table of a single switch.

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
            rightful: ternary;
            reached: ternary;
            hdr.netsum.kind: ternary;
            current: ternary;
            found.newer: ternary;
            asks_the_same: ternary;
            found.agrees: ternary;
            full: ternary;
            has_lanes: ternary; // MARK_*
            mine: ternary;
            found.with_lanes: ternary;
            has_parent: ternary;
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
            (false, _, _, _, _, _, _, _, _, _, _, _, _): drop_after(OUTCOME_MALFORMED);
            (true, 0, _, KIND_RESULT, _, _, _, _, _, _, _, _, _): drop_after(OUTCOME_MALFORMED);
            (true, 0, _, KIND_STATUS, _, _, _, _, _, _, _, _, _): drop_after(OUTCOME_MALFORMED);
            (true, 0, _, _, _, _, _, _, _, _, _, _, _): drop_after(OUTCOME_NOT_ADMITTED);
            (true, 1, 0, _, _, _, _, _, _, _, _, _, _): drop_after(OUTCOME_OUT_OF_RANGE);
            (true, 1, 1, KIND_STATUS, _, _, _, _, _, _, _, _, _): answer_status(OUTCOME_STATUS_PASSED_DOWN);
            // Of a RESULT `mine` says whether the slot took it.
            (true, 1, 1, KIND_RESULT, _, _, 1, _, _, MARK_FINAL &&& MARK_FINAL, 0, _, _): drop_after(OUTCOME_DUPLICATE_DROPPED);
            (true, 1, 1, KIND_RESULT, _, _, _, _, _, _, 0, _, _): drop_after(OUTCOME_STALE);
            (true, 1, 1, KIND_RESULT, _, _, _, _, _, _, _, 0, _): answer_result_without_lanes(OUTCOME_RESULT_TAKEN);
            (true, 1, 1, KIND_RESULT, _, _, _, _, _, _, _, _, _): answer_result(OUTCOME_RESULT_TAKEN);
            // A PROBE goes as far as the contribution went: `full` counts this worker's bit in, `mine` says that it is set.
            (true, 1, 1, KIND_PROBE, 1, 0, 0, _, _, _, _, _, _): answer_status(OUTCOME_MISMATCH);
            (true, 1, 1, KIND_PROBE, _, _, 1, _, 1, _, 0, _, _): answer_status(OUTCOME_PROBED);
            (true, 1, 1, KIND_PROBE, _, _, 1, _, 1, 0 &&& MARK_FINAL, _, _, true): send_up_without_lanes(OUTCOME_PROBED);
            (true, 1, 1, KIND_PROBE, _, _, _, _, _, _, _, _, _): answer_status(OUTCOME_PROBED);
            (true, 1, 1, _, 0, _, _, _, _, _, _, _, _): drop_after(OUTCOME_STALE);
            (true, 1, 1, _, 1, _, _, 0, _, _, _, _, _): answer_status(OUTCOME_MISMATCH);
            (true, 1, 1, _, 1, _, _, 1, 0, _, 0, _, _): drop_after(OUTCOME_ADDED);
            (true, 1, 1, _, 1, _, _, 1, 0, _, _, _, _): drop_after(OUTCOME_DUPLICATE_DROPPED);
            // Full by this contribution.
            (true, 1, 1, _, 1, _, _, 1, 1, 0 &&& MARK_LANES, 0, _, true): send_up_without_lanes(OUTCOME_ADDED);
            (true, 1, 1, _, 1, _, _, 1, 1, _, 0, _, true): send_up(OUTCOME_ADDED);
            (true, 1, 1, _, 1, _, _, 1, 1, 0 &&& MARK_LANES, 0, _, _): answer_result_without_lanes(OUTCOME_COMPLETED);
            (true, 1, 1, _, 1, _, _, 1, 1, _, 0, _, _): answer_result(OUTCOME_COMPLETED);
            // Full before, and the parent has not answered. What a slot without lanes holds is neutral.
            (true, 1, 1, _, 1, _, _, 1, 1, 0, 1, 0, true): send_up_without_lanes(OUTCOME_DUPLICATE_PASSED_UP);
            (true, 1, 1, _, 1, _, _, 1, 1, 0 &&& MARK_FINAL, 1, _, true): send_up(OUTCOME_DUPLICATE_PASSED_UP);
            (true, 1, 1, _, 1, _, _, 1, 1, 0 &&& MARK_FINAL, _, _, true): drop_after(OUTCOME_DUPLICATE_DROPPED);
            (true, 1, 1, _, 1, _, _, 1, 1, 0 &&& MARK_LANES, _, _, _): answer_result_without_lanes(OUTCOME_DUPLICATE_ANSWERED);
            (true, 1, 1, _, 1, _, _, 1, 1, _, _, _, _): answer_result(OUTCOME_DUPLICATE_ANSWERED);
        }
    }
