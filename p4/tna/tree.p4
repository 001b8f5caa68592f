// A switch in a tree of switches (-D TREE=1; shared/tree.p4): what comes from the parent, on its way to the children.

#if PASSES > 1
#error "a switch in a tree has its lanes in one pass: compile with -D TREE=1 or with -D PASSES=2 and more"
#endif

// What `Answer` does, and what only a tree needs of it: a RESULT from the parent goes to all children, its STATUS to the
// child that asked (a MISMATCH to all), and a STATUS that answers a PROBE keeps the way back.
control AnswerInTree(inout headers_t hdr, inout metadata_t meta) {
    Hash<bit<16>>(HashAlgorithm_t.IDENTITY) way_down;
    Hash<bit<8>>(HashAlgorithm_t.IDENTITY) child;
    Answer() answer;

    bit<16> way_here = 0;
    bit<16> way_on = 0; // without the child below this switch
    bit<8> asked_by = 0; // that child
    bit<4> flags = 0;

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

    action pass_status_on(bit<4> flags_here) {
        hdr.netsum.flags = flags_here;
        hdr.netsum.worker_id = asked_by;
        hdr.ipv4.identification = way_on;
        to_group(SEND_TO_ONE_OF_GROUP);
    }

    // The upper two bits of the flags count the levels.
    table answer_in_tree {
        key = {
            meta.outcome: exact;
            flags: ternary;
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
            (OUTCOME_PROBED, _): keep_way();
            (OUTCOME_RESULT_TAKEN, _): pass_on_to_all();
            (OUTCOME_STATUS_PASSED_DOWN, FLAG_MISMATCH &&& FLAG_MISMATCH): pass_mismatch_on();
            (OUTCOME_STATUS_PASSED_DOWN, 0 * FLAGS_ONE_LEVEL): pass_status_on(1 * FLAGS_ONE_LEVEL);
            (OUTCOME_STATUS_PASSED_DOWN, 1 * FLAGS_ONE_LEVEL): pass_status_on(2 * FLAGS_ONE_LEVEL);
            (OUTCOME_STATUS_PASSED_DOWN, 2 * FLAGS_ONE_LEVEL): pass_status_on(3 * FLAGS_ONE_LEVEL);
            (OUTCOME_STATUS_PASSED_DOWN, 3 * FLAGS_ONE_LEVEL): pass_status_on(0);
        }
    }

    apply {
        way_here = hdr.ipv4.identification;
        way_on = way_down.get({ hdr.ipv4.identification[15:CHILD_BITS] });
        asked_by = child.get({ hdr.ipv4.identification[CHILD_BITS - 1:0] });
        flags = hdr.netsum.flags;
        answer.apply(hdr, meta);
        answer_in_tree.apply();
    }
}
