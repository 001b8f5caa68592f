// More lanes than one pass has room for (-D PASSES=2 and more): the packet goes through ingress again, once for each
// group of lanes, and each pass is the protocol of one pass over cells of its own.
//
// A slot has a cell for each pass: tag, collective, bitmap, exponent, has_lanes and lanes. A CONTRIBUTE adds its first group
// in the first pass and leaves it behind, its second in the second, and so on. What is lost between two passes leaves the
// worker's bit clear in the later cells, and its retransmission adds there and is a duplicate before. Who completes the
// last cell completes all, for each worker's packets come to the cells in their order; it then goes through the passes in
// reverse, as a contribution without lanes that is a duplicate, and takes each group with it: its own tag, collective and bitmap
// are compared in each cell, so it cannot take along the lanes of another chunk.

#if __TARGET_TOFINO__ == 1
#define FIRST_RECIRCULATION_PORT 68
#else
#define FIRST_RECIRCULATION_PORT 6
#endif
#ifndef RECIRCULATION_PORT
#define RECIRCULATION_PORT FIRST_RECIRCULATION_PORT
#endif

// In front of a packet between two passes. Only the port for that has such packets, and no cable goes there.
header pass_h {
    bit<8> number; // of the pass to come; the first one, which has no header, is 0
    bit<8> what; // PASS_*
    @padding bit<7> pad;
    port_t ingress_port; // where the packet came from at first
}

const bit<8> LAST_PASS = PASSES - 1;
const bit<8> PASS_ADD = 1; // the packet's next lanes are added
const bit<8> PASS_READ_FOR_ALL = 2; // the slot's lanes are put in front of those the packet has; for the job
const bit<8> PASS_READ_FOR_ONE = 3; // the same; for the sender

#define ADD_AGAIN(n) \
            (true, n, PASS_ADD, OUTCOME_ADDED, _): add_next(n + 1); \
            (true, n, PASS_ADD, OUTCOME_COMPLETED, _): add_next(n + 1); \
            (true, n, PASS_ADD, OUTCOME_DUPLICATE_DROPPED, _): add_next(n + 1); \
            (true, n, PASS_ADD, OUTCOME_DUPLICATE_ANSWERED, _): add_next(n + 1); \
            (true, n, PASS_ADD, OUTCOME_PROBED, _): add_next(n + 1);
#define READ_AGAIN(n) \
            (true, n, PASS_READ_FOR_ALL, OUTCOME_DUPLICATE_ANSWERED, true): read_next(n - 1, PASS_READ_FOR_ALL); \
            (true, n, PASS_READ_FOR_ONE, OUTCOME_DUPLICATE_ANSWERED, true): read_next(n - 1, PASS_READ_FOR_ONE);

control NextPass(inout pass_h pass, inout headers_t hdr, inout metadata_t meta) {
    action again() {
        pass.setValid();
        pass.ingress_port = meta.ingress_port;
        hdr.status.setInvalid();
        meta.outcome = OUTCOME_NONE;
        meta.is_answer = false;
        meta.egress_port = RECIRCULATION_PORT;
        meta.send = SEND_TO_PORT;
    }

    action add_next(bit<8> to_number) {
        again();
        pass.number = to_number;
        pass.what = PASS_ADD;
        hdr.lanes.setInvalid();
        hdr.netsum.pool_index = hdr.netsum.pool_index + (bit<16>) POOL_INDICES;
    }

    action read_next(bit<8> to_number, bit<8> to_what) {
        again();
        pass.number = to_number;
        pass.what = to_what;
        hdr.netsum.pool_index = hdr.netsum.pool_index - (bit<16>) POOL_INDICES;
    }

    action finish() {
        pass.setInvalid();
        hdr.netsum.pool_index = hdr.netsum.pool_index & (bit<16>) (POOL_INDICES - 1);
    }

    action finish_for_all() {
        finish();
        meta.outcome = OUTCOME_COMPLETED;
    }

    action give_up() {
        meta.outcome = OUTCOME_NONE;
        meta.is_answer = false;
        meta.send = SEND_NOWHERE;
    }

    table next_pass {
        key = {
            pass.isValid(): ternary;
            pass.number: ternary;
            pass.what: ternary;
            meta.outcome: ternary;
            hdr.lanes.isValid(): ternary;
        }
        actions = {
            add_next;
            read_next;
            finish;
            finish_for_all;
            give_up;
            NoAction;
        }
        const default_action = NoAction();
        const entries = {
            // The first: all that was taken, or asks, goes on; what was not ends here.
            (false, _, _, OUTCOME_ADDED, _): add_next(1);
            (false, _, _, OUTCOME_COMPLETED, _): add_next(1);
            (false, _, _, OUTCOME_DUPLICATE_DROPPED, _): add_next(1);
            (false, _, _, OUTCOME_DUPLICATE_ANSWERED, _): add_next(1);
            (false, _, _, OUTCOME_PROBED, _): add_next(1);
            (false, _, _, _, _): NoAction();
            // The last one that adds: it decides. A slot without lanes is answered at once.
            (true, LAST_PASS, PASS_ADD, OUTCOME_COMPLETED, true): read_next(LAST_PASS - 1, PASS_READ_FOR_ALL);
            (true, LAST_PASS, PASS_ADD, OUTCOME_DUPLICATE_ANSWERED, true): read_next(LAST_PASS - 1, PASS_READ_FOR_ONE);
            (true, LAST_PASS, PASS_ADD, _, _): finish();
            // Between them.
#if PASSES > 2
            ADD_AGAIN(1) ADD_AGAIN(2)
#endif
#if PASSES > 4
            ADD_AGAIN(3) ADD_AGAIN(4) ADD_AGAIN(5) ADD_AGAIN(6)
#endif
            // Back again. Each cell says for itself that the slot is full of the same chunk and collective.
            (true, 0, PASS_READ_FOR_ALL, OUTCOME_DUPLICATE_ANSWERED, true): finish_for_all();
            (true, 0, PASS_READ_FOR_ONE, OUTCOME_DUPLICATE_ANSWERED, true): finish();
#if PASSES > 2
            READ_AGAIN(1) READ_AGAIN(2)
#endif
#if PASSES > 4
            READ_AGAIN(3) READ_AGAIN(4) READ_AGAIN(5) READ_AGAIN(6)
#endif
            (true, _, PASS_ADD, _, _): finish();
            (true, _, _, OUTCOME_STALE, _): finish();
            (true, _, _, _, _): give_up();
        }
    }

    apply {
        next_pass.apply();
    }
}
