// A switch without a tree: its slots, which a quorum may complete, and whom its answers go to.

control JobSettings(in headers_t hdr, inout job_t job) {
    JobQuorum() job_quorum;

    apply {
        job_quorum.apply(hdr, job.quorum);
    }
}

control Slot(inout headers_t hdr, inout metadata_t meta, in job_t job, in bool is_further_pass,
             inout worker_bitmap_t header_only) {
    ReadContribution() read_contribution;
    ClaimSlot() claim;
    Lanes() lanes;
    UpdateSlot() update;
    Outcome() outcome;
    SlotWorkers() workers;
    NameHeld() name_held;

    finding_t found = NOTHING_FOUND;
    bit<1> reached = 0; // the packet may touch the slot
    bool goes_up = false; // never: there is no parent
    bit<8> mark = 0; // the packet's bits for the slot's marks
    bit<1> names_members = 0; // the header of a STATUS is filled in already

    apply {
        read_contribution.apply(hdr, found);
        if (hdr.lanes.isValid()) {
            mark = MARK_LANES;
        } else if (hdr.netsum.quorum == 1) {
            mark = job.quorum.workers << 2; // * MISSING_UNIT
        }
        // The last comparison guards against a wrong entry of the controller.
        if (meta.well_formed && meta.admission.admitted && (meta.admission.indices_left != 0 || is_further_pass) &&
            (meta.admission.index & BEYOND_POOL) == 0) {
            reached = 1;
            if (hdr.netsum.quorum == 0 || job.quorum.workers != 0) {
                claim.apply(hdr, meta.admission.epoch, meta.admission.index, meta.admission.worker_bit, found);
            }
        }
        lanes.apply(hdr.lanes, hdr.netsum.op, hdr.netsum.worker_id, meta.admission.index, found);
        update.apply(hdr.netsum, meta.admission.index, hdr.netsum.worker_id, meta.admission.worker_bit,
                     meta.admission.full_mask, mark, found);
        outcome.apply(hdr, meta, meta.admission.admitted, reached, job, found, goes_up);
        // The control writes into the header, so the header must be valid.
        workers.apply(hdr, meta.admission.index, meta.admission.worker_bit, found, names_members, header_only);
        if (hdr.status.isValid() && names_members == 0) {
            name_held.apply(hdr, found);
        }
    }
}

// In egress: which copy this is of an answer, and to whom.
control AddressCopy(in bridge_h bridge, in bit<16> replica_id, inout headers_t hdr, inout egress_metadata_t meta,
                    inout bool wanted) {
    CopyRewrite() copy_rewrite;

    apply {
        if (bridge.leaving == LEAVING_ANSWER_TO_GROUP || bridge.leaving == LEAVING_LANES_TO_GROUP) {
            meta.replica = replica_id;
        }
        if (hdr.netsum.isValid()) {
            copy_rewrite.apply(hdr, meta.replica, wanted);
        }
    }
}
