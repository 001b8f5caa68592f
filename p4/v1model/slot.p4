// The slots. Per pool index: tag (epoch, chunk), collective (op, fingerprint), seen, header_only, marks, exponent, lanes.
//
// All of it changes here, in ingress, where BMv2 runs one packet at a time; its egress threads would race.

control Slot(inout headers_t hdr, inout metadata_t meta, inout quorum_t quorum, inout parent_t parent,
             out worker_bitmap_t header_only, out bool congested) {
    register<bit<32>>(POOL_INDICES) slot_epoch;
    register<bit<32>>(POOL_INDICES) slot_chunk;
    register<bit<32>>(POOL_INDICES) slot_collective;
    register<worker_bitmap_t>(POOL_INDICES) slot_seen;
    register<worker_bitmap_t>(POOL_INDICES) slot_header_only; // whose RESULTs are header-only
    register<bit<8>>(POOL_INDICES) slot_marks;
    register<bit<16>>(POOL_INDICES) slot_exponent;
    Lanes() lanes;
    Parent() job_parent;
    CountWorkers() count_workers;
    bit<16> growth_bytes;

    action limit(bit<16> bytes) {
        growth_bytes = bytes;
    }

    // Limit on the growth of a packet, in bytes. BMv2 aborts beyond 512 bytes, over recirculation too. The embedded
    // engine and the kernel's switch put limits of their own into the default action.
    table packet_growth {
        actions = { limit; }
        default_action = limit(512);
    }

    apply {
        bit<32> index = (bit<32>) meta.admission.index;
        bit<32> epoch;
        bit<32> chunk;
        bit<32> collective;
        worker_bitmap_t seen;
        bit<8> marks;
        bit<16> exponent;
        slot_epoch.read(epoch, index);
        slot_chunk.read(chunk, index);
        slot_collective.read(collective, index);
        slot_seen.read(seen, index);
        slot_header_only.read(header_only, index);
        slot_marks.read(marks, index);
        slot_exponent.read(exponent, index);

        bit<32> asked_collective = hdr.netsum.quorum ++ hdr.netsum.op ++ hdr.netsum.fingerprint;
        bit<32> age = hdr.netsum.chunk - chunk; // 0: same; 1 .. 2^31 - 1: newer; else older than the slot
        if (epoch != meta.admission.epoch) {
            age = 1;
            chunk = hdr.netsum.chunk;
            seen = 0;
        }

        bool has_header_only = hdr.netsum.flags & FLAG_HEADER_ONLY != 0;
        bit<8> mark = 0; // of the packet: marked by a queue on its way here (CE, RFC 3168), or below the child it is from
        if (hdr.ipv4.tos & 3 == 3 || hdr.netsum.flags & FLAG_CONGESTED != 0) {
            mark = MARK_CONGESTED;
        }

        // Decide. Whatever changes is written once, at the end.
        bool complete = false; // the packet's tag, with this packet in it
        bool changed = false;
        if (hdr.netsum.kind == KIND_PROBE) {
            meta.outcome = OUTCOME_PROBED;
            if (age == 0) {
                if (collective != asked_collective) {
                    meta.outcome = OUTCOME_MISMATCH;
                } else {
                    complete = seen == meta.admission.full_mask;
                }
            }
        } else if (age[31:31] == 1) {
            meta.outcome = OUTCOME_STALE;
        } else if (hdr.netsum.kind == KIND_RESULT) {
            // From the parent, which has this switch's contribution to this tag, or the RESULT is not for this slot.
            if (age != 0 || collective != asked_collective || seen != meta.admission.full_mask) {
                meta.outcome = OUTCOME_STALE;
            } else if (marks & MARK_FINAL != 0) {
                meta.outcome = OUTCOME_DUPLICATE_DROPPED;
            } else {
                meta.outcome = OUTCOME_RESULT_TAKEN;
                changed = true;
            }
        } else {
            if (age != 0) {
                chunk = hdr.netsum.chunk;
                collective = asked_collective;
                seen = 0;
                header_only = 0;
                marks = 0;
                exponent = EXPONENT_ALL_ZERO;
            }
            bit<8> added = 0;
            if (quorum.workers != 0) {
                count_workers.apply(seen, added);
            }
            if (collective != asked_collective) {
                meta.outcome = OUTCOME_MISMATCH;
                collective = COLLECTIVE_DISPUTED;
                changed = true;
            } else if (quorum.workers != 0 && added == quorum.workers) {
                // The slot keeps its contents, and every further contribution is answered with them.
                meta.outcome = OUTCOME_DUPLICATE_ANSWERED;
                if (seen & meta.admission.worker_bit == 0) {
                    meta.outcome = OUTCOME_LATE;
                }
            } else if (seen & meta.admission.worker_bit == 0) {
                meta.outcome = OUTCOME_ADDED;
                changed = true;
                seen = seen | meta.admission.worker_bit;
                if (has_header_only) {
                    header_only = header_only | meta.admission.worker_bit;
                }
                complete = seen == meta.admission.full_mask || (quorum.workers != 0 && added + 1 == quorum.workers);
            } else if (seen == meta.admission.full_mask) {
                meta.outcome = OUTCOME_DUPLICATE_ANSWERED;
                complete = true;
            } else {
                meta.outcome = OUTCOME_DUPLICATE_DROPPED;
            }
        }
        quorum.added = seen;

        if (complete && marks & MARK_FINAL == 0 && quorum.workers == 0) {
            job_parent.apply(hdr, parent);
        }

        lane_step_t step = LANE_STEP_NONE;
        if (meta.outcome == OUTCOME_ADDED) {
            if (hdr.lanes.isValid()) {
                if (marks & MARK_LANES == 0) {
                    step = LANE_STEP_WRITE;
                } else if (hdr.netsum.op == OP_SUM) {
                    step = LANE_STEP_ADD;
                } else if (hdr.netsum.op == OP_MAX) {
                    step = LANE_STEP_MAX;
                } else {
                    step = LANE_STEP_BOR;
                }
                marks = marks | MARK_LANES;
            }
            marks = marks | mark;
            if (hdr.netsum.exponent > exponent) {
                exponent = hdr.netsum.exponent;
            }
            if (complete && !parent.present) {
                meta.outcome = OUTCOME_COMPLETED;
            }
        } else if (meta.outcome == OUTCOME_RESULT_TAKEN) {
            marks = MARK_FINAL | mark;
            if (hdr.lanes.isValid()) {
                marks = marks | MARK_LANES;
                step = LANE_STEP_WRITE;
            }
            exponent = hdr.netsum.exponent;
        } else if (parent.present && meta.outcome == OUTCOME_DUPLICATE_ANSWERED) {
            // One child retransmits to the parent for all, or each packet lost there would cost one from every child.
            if (meta.admission.worker_bit == 1) {
                meta.outcome = OUTCOME_DUPLICATE_PASSED_UP;
            } else {
                meta.outcome = OUTCOME_DUPLICATE_DROPPED;
                parent.present = false;
            }
        }

        bool is_status = meta.outcome == OUTCOME_MISMATCH || (meta.outcome == OUTCOME_PROBED && !parent.present);
        bool is_result = meta.outcome == OUTCOME_COMPLETED || meta.outcome == OUTCOME_DUPLICATE_ANSWERED ||
            meta.outcome == OUTCOME_LATE;
        bool leaves = is_result || (parent.present && meta.outcome != OUTCOME_PROBED);
        if (meta.outcome == OUTCOME_RESULT_TAKEN) {
            meta.is_answer = true;
        }
        if (leaves) {
            meta.is_answer = is_result;
            hdr.netsum.exponent = exponent;
            // The sender of a duplicate says itself whether it needs lanes.
            if (marks & MARK_LANES == 0 || (has_header_only && meta.outcome == OUTCOME_DUPLICATE_ANSWERED)) {
                if (is_result) {
                    hdr.lanes.setInvalid();
                }
            } else if (step == LANE_STEP_NONE) {
                // The lanes are in the slot, not in the packet.
                packet_growth.apply();
                if (hdr.lanes.isValid() || LANES_BYTES <= growth_bytes) {
                    hdr.lanes.setValid();
                    step = LANE_STEP_READ;
                } else {
                    // The packet cannot grow: a STATUS says that the slot is full. A worker that needs lanes sends its own again.
                    is_status = true;
                    parent.present = false;
                }
            }
        }

        congested = marks & MARK_CONGESTED != 0;

        // Write.
        if (changed) {
            slot_epoch.write(index, meta.admission.epoch);
            slot_chunk.write(index, chunk);
            slot_collective.write(index, collective);
            slot_seen.write(index, seen);
            slot_header_only.write(index, header_only);
            slot_marks.write(index, marks);
            slot_exponent.write(index, exponent);
        }
        if (hdr.lanes.isValid()) {
            lanes.apply(hdr.lanes, index, step);
        }

        if (is_status) {
            meta.is_answer = true;
            hdr.status.setValid();
            hdr.status.seen = seen;
            hdr.status.slot_chunk = chunk;
        }
    }
}
