// The protocol that SwitchML published (Sapio et al., NSDI 2021, algorithm 3), with netsum's packets and admission.
//
// A slot has two versions. A packet names its slot and a version by one bit, nothing more: the chunk number in netsum's
// header is not looked at, only repeated. Which contributions are in is one bit for each worker and version, and a count
// that goes round at the number of workers. A contribution sets its worker's bit in its version and clears it in the other.
//
// SwitchML's workers send again after a timeout. netsum's ask with a PROBE first; it is answered from the same bits.

#include <core.p4>
#include <v1model.p4>

#include "../../../../p4/shared/constants.p4"
#include "../../../../p4/shared/types.p4"
#include "../../../../p4/shared/protocol_headers.p4"
#include "../../../../p4/v1model/pool.p4"
#include "../../../../p4/v1model/shim.p4"
#include "../../../../p4/v1model/lane.p4"
#define LANES 8
#include "../../../../p4/shared/lanes.p4"
#include "../../../../p4/shared/headers.p4"
#include "../../../../p4/shared/parser.p4"
#include "../../../../p4/shared/switch_address.p4"
#include "../../../../p4/shared/admission.p4"
#include "../../../../p4/shared/answer.p4"
#include "../../../../p4/shared/copy_rewrite.p4"
#include "../../../../p4/v1model/target.p4"
#include "../../../../p4/shared/counters.p4"

control Pool(inout lanes_h lanes, in bit<32> index, in lane_step_t step) {
    LANE_REGISTER(0)
    LANE_REGISTER(1)
    LANE_REGISTER(2)
    LANE_REGISTER(3)
    LANE_REGISTER(4)
    LANE_REGISTER(5)
    LANE_REGISTER(6)
    LANE_REGISTER(7)
    bit<32> held;

    action write_all() {
        LANE_WRITE(0) LANE_WRITE(1) LANE_WRITE(2) LANE_WRITE(3)
        LANE_WRITE(4) LANE_WRITE(5) LANE_WRITE(6) LANE_WRITE(7)
    }

    action add_all() {
        LANE_ADD(0) LANE_ADD(1) LANE_ADD(2) LANE_ADD(3)
        LANE_ADD(4) LANE_ADD(5) LANE_ADD(6) LANE_ADD(7)
    }

    action read_all() {
        LANE_READ(0) LANE_READ(1) LANE_READ(2) LANE_READ(3)
        LANE_READ(4) LANE_READ(5) LANE_READ(6) LANE_READ(7)
    }

    apply {
        if (step == LANE_STEP_WRITE) {
            write_all();
        } else if (step == LANE_STEP_ADD) {
            add_all();
        } else {
            read_all();
        }
    }
}

control Slot(inout headers_t hdr, inout metadata_t meta) {
    register<worker_bitmap_t>(POOL_INDICES) seen;
    register<bit<8>>(POOL_INDICES) count;
    Pool() pool;

    apply {
        bit<32> index = (bit<32>) meta.admission.index;
        bit<32> other = index ^ 1;
        worker_bitmap_t in_this;
        worker_bitmap_t in_other;
        bit<8> counted;
        seen.read(in_this, index);
        seen.read(in_other, other);
        count.read(counted, index);
        lane_step_t step = LANE_STEP_READ;

        if (hdr.netsum.kind == KIND_PROBE) {
            meta.outcome = OUTCOME_PROBED;
            meta.is_answer = true;
            hdr.status.setValid();
            hdr.status.seen = in_this;
            if (counted == 0 && in_this & meta.admission.worker_bit != 0) {
                hdr.status.seen = meta.admission.full_mask;
            }
            hdr.status.slot_chunk = hdr.netsum.chunk;
        } else if (in_this & meta.admission.worker_bit == 0) {
            meta.outcome = OUTCOME_ADDED;
            step = LANE_STEP_ADD;
            if (counted == 0) {
                step = LANE_STEP_WRITE;
            }
            counted = counted + 1;
            if (counted == meta.admission.num_workers) {
                counted = 0;
                meta.outcome = OUTCOME_COMPLETED;
            }
            seen.write(index, in_this | meta.admission.worker_bit);
            seen.write(other, in_other & ~meta.admission.worker_bit);
            count.write(index, counted);
        } else if (counted == 0) {
            meta.outcome = OUTCOME_DUPLICATE_ANSWERED;
        } else {
            meta.outcome = OUTCOME_DUPLICATE_DROPPED;
        }

        if (meta.outcome == OUTCOME_COMPLETED || meta.outcome == OUTCOME_DUPLICATE_ANSWERED) {
            meta.is_answer = true;
        }
        if (hdr.lanes.isValid()) {
            pool.apply(hdr.lanes, index, step);
        }
    }
}

control NetsumIngress(inout headers_t hdr, inout target_metadata_t target, inout standard_metadata_t standard) {
    ArriveFromTarget() arrive;
    SwitchAddress() switch_address;
    WorkerAdmission() admission;
    Slot() slot;
    Answer() answer;
    OutcomeCounters() counters;
    LeaveToTarget() leave;

    apply {
        arrive.apply(hdr, target.shared, standard);
        switch_address.apply(target.shared);
        if (target.shared.is_own && target.shared.well_formed) {
            admission.apply(hdr, target.shared);
            if (!target.shared.admission.admitted) {
                target.shared.outcome = OUTCOME_NOT_ADMITTED;
            } else if (target.shared.admission.indices_left == 0 || (bit<32>) target.shared.admission.index >= POOL_INDICES) {
                target.shared.outcome = OUTCOME_OUT_OF_RANGE;
            } else {
                slot.apply(hdr, target.shared);
            }
            if (target.shared.is_answer) {
                answer.apply(hdr, target.shared);
            }
            counters.apply(hdr, target.shared);
        }
        leave.apply(target.shared, standard);
    }
}

control NetsumEgress(inout headers_t hdr, inout target_metadata_t target, inout standard_metadata_t standard) {
    CopyRewrite() copy_rewrite;

    apply {
        bool wanted = true;
        if (target.shared.is_answer) {
            copy_rewrite.apply(hdr, standard.egress_rid, wanted);
        }
        if (!wanted) {
            mark_to_drop(standard);
        }
    }
}

V1Switch(TargetParser(), VerifyIpv4(), NetsumIngress(), NetsumEgress(), ComputeIpv4(), TargetDeparser()) main;
