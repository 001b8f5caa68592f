// A switch in a tree of switches (-D TREE=1; shared/tree.p4): its slots, and what comes from the parent on its way to the
// children.

#if PASSES > 1
#error "a switch in a tree has its lanes in one pass: compile with -D TREE=1 or with -D PASSES=2 and more"
#endif

control JobSettings(in headers_t hdr, inout job_t job) {
    Parent() job_parent;
    JobQuorum() job_quorum;

    apply {
        job_parent.apply(hdr, job.parent);
        job_quorum.apply(hdr, job.quorum);
    }
}

control SlotInTree(inout headers_t hdr, inout metadata_t meta, in job_t job, inout bool goes_up,
                   inout worker_bitmap_t header_only) {
    ReadContribution() read_contribution;
    ClaimSlot() claim;
    Lanes() lanes;
    UpdateSlot() update;
    Outcome() outcome;
    SlotWorkers() workers;
    NameHeld() name_held;

    finding_t found = NOTHING_FOUND;
    bool rightful = false;
    bit<1> reached = 0; // the packet may touch the slot
    worker_bitmap_t bits = 0; // the worker's; of a RESULT, those of all
    bit<8> worker = 0; // whose it is
    bit<8> mark = 0; // the packet's bits for the slot's marks
    bit<1> names_members = 0; // the header of a STATUS is filled in already

    apply {
        read_contribution.apply(hdr, found);
        if (hdr.lanes.isValid()) {
            mark = MARK_LANES;
        } else if (hdr.netsum.quorum == 1) {
            mark = job.quorum.workers << 2; // * MISSING_UNIT
        }
        if (meta.well_formed && meta.admission.admitted &&
            ((meta.admission.worker_bit != 0 && (hdr.netsum.kind == KIND_CONTRIBUTE || hdr.netsum.kind == KIND_PROBE)) ||
             (meta.admission.worker_bit == 0 && (hdr.netsum.kind == KIND_RESULT || hdr.netsum.kind == KIND_STATUS)))) {
            rightful = true;
            if (hdr.netsum.kind == KIND_RESULT) {
                bits = meta.admission.full_mask;
                worker = FROM_PARENT;
            } else {
                bits = meta.admission.worker_bit;
                worker = hdr.netsum.worker_id;
            }
            // The last comparison guards against a wrong entry of the controller.
            if (meta.well_formed && meta.admission.admitted && meta.admission.indices_left != 0 &&
                (meta.admission.index & BEYOND_POOL) == 0) {
                reached = 1;
                if (hdr.netsum.quorum == 0 || job.quorum.workers != 0) {
                    claim.apply(hdr, meta.admission.epoch, meta.admission.index, bits, found);
                }
            }
        }
        lanes.apply(hdr.lanes, hdr.netsum.op, worker, meta.admission.index, found);
        update.apply(hdr.netsum, meta.admission.index, worker, bits, meta.admission.full_mask, mark, found);
        outcome.apply(hdr, meta, rightful, reached, job, found, goes_up);
        // The control writes into the header, so the header must be valid.
        workers.apply(hdr, meta.admission.index, bits, found, names_members, header_only);
        // The parent's stays as it is.
        if (hdr.status.isValid() && hdr.netsum.kind != KIND_STATUS && names_members == 0) {
            name_held.apply(hdr, found);
        }
    }
}

// `Answer` with additions for a tree: a RESULT from the parent goes to all children, its STATUS to the
// child that asked (a MISMATCH to all), and a STATUS that answers a PROBE keeps the way back.
control AnswerInTree(inout headers_t hdr, inout metadata_t meta) {
    Hash<bit<16>>(HashAlgorithm_t.IDENTITY) way_down;
    Hash<bit<8>>(HashAlgorithm_t.IDENTITY) child;
    Answer() answer;

    bit<16> way_here = 0;
    bit<16> way_on = 0; // without the child below this switch
    bit<8> asked_by = 0; // that child
    bit<8> flags = 0;
    bit<4> level = 0;

    action to_group(send_t send) {
        meta.mcast_group = meta.admission.mcast_group;
        meta.send = send;
    }

    action keep_way() {
        hdr.ipv4.identification = way_here;
    }

    action pass_on_to_all() {
        to_group(SEND_TO_GROUP);
    }

    action pass_mismatch_on() {
        hdr.netsum.flags = FLAG_MISMATCH;
        to_group(SEND_TO_GROUP);
    }

    action pass_status_on(bit<4> level_here) {
        hdr.netsum.level = level_here;
        hdr.netsum.worker_id = asked_by;
        hdr.ipv4.identification = way_on;
        to_group(SEND_TO_ONE_OF_GROUP);
    }

    table answer_in_tree {
        key = {
            meta.outcome: exact;
            flags: ternary;
            level: ternary;
        }
        actions = {
            keep_way;
            pass_on_to_all;
            pass_mismatch_on;
            pass_status_on;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        const entries = {
            (OUTCOME_PROBED, _, _): keep_way();
            (OUTCOME_RESULT_TAKEN, _, _): pass_on_to_all();
            (OUTCOME_STATUS_PASSED_DOWN, FLAG_MISMATCH, _): pass_mismatch_on();
            (OUTCOME_STATUS_PASSED_DOWN, 0, 0): pass_status_on(1);
            (OUTCOME_STATUS_PASSED_DOWN, 0, 1): pass_status_on(2);
            (OUTCOME_STATUS_PASSED_DOWN, 0, 2): pass_status_on(3);
            (OUTCOME_STATUS_PASSED_DOWN, 0, _): pass_status_on(0xF); // more levels than a tree has
        }
    }

    apply {
        way_here = hdr.ipv4.identification;
        way_on = way_down.get({ hdr.ipv4.identification[15:CHILD_BITS] });
        asked_by = child.get({ hdr.ipv4.identification[CHILD_BITS - 1:0] });
        flags = hdr.netsum.flags;
        level = hdr.netsum.level;
        answer.apply(hdr, meta);
        answer_in_tree.apply();
    }
}

control Reduction(inout target_headers_t hdr, inout metadata_t meta, in job_t job, inout worker_bitmap_t header_only) {
    SlotInTree() slot;
    PassUp() pass_up;
    AnswerInTree() answer;
    OutcomeCounters() counters;
    TreeCounters() tree_counters;
    QuorumCounters() quorum_counters;

    bool goes_up = false;

    apply {
        slot.apply(hdr.frame, meta, job, goes_up, header_only);
        if (goes_up) {
            pass_up.apply(hdr.frame, meta, job.parent);
            if (hdr.frame.netsum.kind == KIND_CONTRIBUTE && header_only == meta.admission.full_mask) {
                hdr.frame.netsum.flags = hdr.frame.netsum.flags | FLAG_HEADER_ONLY; // No child needs the lanes.
            }
        }
        tree_counters.apply(hdr.frame, meta, goes_up);
        if (meta.is_answer) {
            answer.apply(hdr.frame, meta);
        }
        counters.apply(hdr.frame, meta);
        quorum_counters.apply(hdr.frame, meta);
    }
}

// In egress: the copy's number and receiver. A STATUS from the parent goes to the child that it names.
control AddressCopy(in bridge_h bridge, in bit<16> replica_id, inout headers_t hdr, inout egress_metadata_t meta,
                    inout bool wanted) {
    CopyRewrite() copy_rewrite;

    bit<8> asked_by = 0;

    apply {
        if (bridge.leaving == LEAVING_ANSWER_TO_GROUP || bridge.leaving == LEAVING_LANES_TO_GROUP ||
            bridge.leaving == LEAVING_ANSWER_TO_ONE_OF_GROUP) {
            meta.replica = replica_id;
        }
        if (hdr.netsum.isValid()) {
            asked_by = hdr.netsum.worker_id;
            copy_rewrite.apply(hdr, meta.replica, wanted);
            if (bridge.leaving == LEAVING_ANSWER_TO_ONE_OF_GROUP && hdr.netsum.worker_id != asked_by) {
                wanted = false;
            }
        }
    }
}
