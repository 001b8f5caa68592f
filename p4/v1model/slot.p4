// The slots. Per pool index: tag (epoch, chunk), collective (op, fingerprint), seen, has_lanes, exponent, lanes.
//
// All of it changes here, in ingress, where BMv2 runs one packet at a time; its egress threads would race.

// BMv2 lets a packet leave at most this much larger than it came, over recirculation too, and aborts beyond.
const bit<16> MAX_GROWTH_BYTES = 512;

control Slot(inout headers_t hdr, inout metadata_t meta) {
    register<bit<32>>(POOL_INDICES) slot_epoch;
    register<bit<32>>(POOL_INDICES) slot_chunk;
    register<bit<32>>(POOL_INDICES) slot_collective;
    register<worker_bitmap_t>(POOL_INDICES) slot_seen;
    register<bit<8>>(POOL_INDICES) slot_has_lanes;
    register<bit<16>>(POOL_INDICES) slot_exponent;
    Lanes() lanes;

    apply {
        bit<32> index = (bit<32>) meta.admission.index;
        bit<32> epoch;
        bit<32> chunk;
        bit<32> collective;
        worker_bitmap_t seen;
        bit<8> has_lanes;
        bit<16> exponent;
        slot_epoch.read(epoch, index);
        slot_chunk.read(chunk, index);
        slot_collective.read(collective, index);
        slot_seen.read(seen, index);
        slot_has_lanes.read(has_lanes, index);
        slot_exponent.read(exponent, index);

        bit<32> asked_collective = (bit<32>) (hdr.netsum.op ++ hdr.netsum.fingerprint);
        bit<32> age = hdr.netsum.chunk - chunk; // 0: same; 1 .. 2^31 - 1: newer; else older than the slot
        if (epoch != meta.admission.epoch) {
            age = 1;
            chunk = hdr.netsum.chunk;
            seen = 0;
        }

        if (hdr.netsum.kind == KIND_PROBE) {
            meta.outcome = OUTCOME_PROBED;
            if (age == 0 && collective != asked_collective) {
                meta.outcome = OUTCOME_MISMATCH;
            }
        } else if (age[31:31] == 1) {
            meta.outcome = OUTCOME_STALE;
        } else {
            if (age != 0) {
                chunk = hdr.netsum.chunk;
                collective = asked_collective;
                seen = 0;
                has_lanes = 0;
                exponent = EXPONENT_ALL_ZERO;
            }
            if (collective != asked_collective) {
                meta.outcome = OUTCOME_MISMATCH;
                slot_collective.write(index, COLLECTIVE_DISPUTED);
            } else if (seen & meta.admission.worker_bit == 0) {
                meta.outcome = OUTCOME_ADDED;
            } else if (seen == meta.admission.full_mask) {
                meta.outcome = OUTCOME_DUPLICATE_ANSWERED;
            } else {
                meta.outcome = OUTCOME_DUPLICATE_DROPPED;
            }
        }

        lane_step_t step = LANE_STEP_NONE;
        if (meta.outcome == OUTCOME_ADDED) {
            if (hdr.lanes.isValid()) {
                if (has_lanes == 0) {
                    step = LANE_STEP_WRITE;
                } else if (hdr.netsum.op == OP_SUM) {
                    step = LANE_STEP_ADD;
                } else if (hdr.netsum.op == OP_MAX) {
                    step = LANE_STEP_MAX;
                } else {
                    step = LANE_STEP_BOR;
                }
                has_lanes = 1;
            }
            if (hdr.netsum.exponent > exponent) {
                exponent = hdr.netsum.exponent;
            }
            seen = seen | meta.admission.worker_bit;
            slot_epoch.write(index, meta.admission.epoch);
            slot_chunk.write(index, chunk);
            slot_collective.write(index, collective);
            slot_seen.write(index, seen);
            slot_has_lanes.write(index, has_lanes);
            slot_exponent.write(index, exponent);
            if (seen == meta.admission.full_mask) {
                meta.outcome = OUTCOME_COMPLETED;
            }
        }

        bool is_status = meta.outcome == OUTCOME_PROBED || meta.outcome == OUTCOME_MISMATCH;
        if (meta.outcome == OUTCOME_COMPLETED || meta.outcome == OUTCOME_DUPLICATE_ANSWERED) {
            meta.is_answer = true;
            hdr.netsum.exponent = exponent;
            if (has_lanes == 0) {
                hdr.lanes.setInvalid();
            } else if (step == LANE_STEP_NONE) {
                // The lanes are in the slot, not in the packet.
                if (hdr.lanes.isValid() || LANES_BYTES <= MAX_GROWTH_BYTES) {
                    hdr.lanes.setValid();
                    step = LANE_STEP_READ;
                } else {
                    // No room for them: say that the slot is full; who wants the RESULT asks again with lanes.
                    is_status = true;
                }
            }
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
