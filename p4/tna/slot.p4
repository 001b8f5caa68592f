// The slots. Per pool index: tag (epoch, chunk), collective, whose contributions, marks, exponent, lanes. Each is in a file of
// its own, with its registers and their actions. Here is their order, the same for all variants of the program.
//
// A register is one memory in one stage, read and written in one go, by one packet after the other; and a later stage sees
// packets in the order of an earlier one. So a packet finds in all of its registers the values that the packets before
// it left there. Each decision is one such access, and its output decides the next.
//
// A stateful ALU compares two things and puts out one word (Tofino 1): where two words are wanted, two registers hold the
// same and do the same.

// A packet's findings about its slot: raw register output, as deriving more here would cost a stage
// before all lanes.
struct finding_t {
    bit<32> collective; // the packet's own
    bit<8> with_lanes; // the packet has lanes of its own
    bit<1> newer; // its tag replaces the slot's
    int<32> held_chunk; // the slot's, before
    bit<1> current; // its tag is the slot's, or newer
    bit<1> agrees; // the slot takes or has taken the contribution
    bit<1> asks_the_same; // a PROBE or RESULT for the slot's tag and its collective
    worker_bitmap_t before; // whose contributions the slot held; of a RESULT, all bits if the slot takes it, or none
    int<32> seed; // SEED_*, the value that the lanes write
    worker_bitmap_t mine; // this worker's bit, if it was set before
    bit<1> full; // with this contribution
    bit<8> marks; // after it; of a quorum's slot, before
}

const finding_t NOTHING_FOUND = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 };

// A job's entries beside the admission of its workers. Without a tree no job has a parent.
struct job_t {
    parent_t parent;
    quorum_t quorum;
}

const job_t NO_JOB = { { false, 0, 0, 0, 0 }, { 0, 0 } };

// Match on the flags of a worker that needs a header-only RESULT.
#define HAS_HEADER_ONLY FLAG_HEADER_ONLY &&& FLAG_HEADER_ONLY

#include "tag.p4"
#include "members.p4"
#include "lane.p4"
#include "lanes.p4"
#include "marks.p4"
#include "exponent.p4"
#include "workers.p4"
#include "outcome.p4"

// Properties of a packet, before any register.
control ReadContribution(in headers_t hdr, inout finding_t found) {
    Hash<bit<32>>(HashAlgorithm_t.IDENTITY) collective_hash;

    apply {
        if (hdr.lanes.isValid()) {
            found.with_lanes = MARK_LANES;
        }
        found.collective = collective_hash.get({ hdr.netsum.quorum, hdr.netsum.fingerprint, hdr.netsum.op });
    }
}

// Takes or looks at a slot's tag, collective and bitmap. Only for a packet that may touch the slot: all registers behind these
// depend on the findings here.
control ClaimSlot(inout headers_t hdr, in bit<32> epoch, in pool_index_t index, in worker_bitmap_t bits,
                  inout finding_t found) {
    SlotTag() tag;
    EmptyLanes() empty_lanes;
    SlotMembers() members;

    apply {
        tag.apply(hdr.netsum, epoch, index, found);
        if (found.with_lanes == 0) {
            empty_lanes.apply(hdr.lanes); // from here on all packets have lanes
        }
        members.apply(hdr.netsum, index, bits, found);
    }
}

// All the rest but the lanes: both wait for the bitmap, but not for each other.
control UpdateSlot(inout netsum_h netsum, in pool_index_t index, in bit<8> worker, in worker_bitmap_t bits,
                   in worker_bitmap_t full_mask, in bit<8> mark, inout finding_t found) {
    SlotMarks() marks;
    SlotExponent() exponent;

    worker_bitmap_t after = 0;

    @hidden action note_bits() {
        found.mine = found.before & bits;
        after = found.before | bits;
    }

    apply {
        note_bits();
        if (after == full_mask) {
            found.full = 1;
        }
        marks.apply(netsum, index, worker, mark, found);
        exponent.apply(netsum, index, found);
    }
}

// Writes the slot's former contents behind the header of a STATUS.
control NameHeld(inout headers_t hdr, in finding_t found) {
    apply {
        if (found.newer == 1) {
            hdr.status.seen = 0;
            hdr.status.slot_chunk = hdr.netsum.chunk;
        } else {
            hdr.status.seen = found.before;
            hdr.status.slot_chunk = (bit<32>) found.held_chunk;
        }
    }
}
