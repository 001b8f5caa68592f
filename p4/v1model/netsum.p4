// netsum for v1model targets (BMv2, the embedded engine). Compile with -D LANES=64, 256 or 1024.

#include <core.p4>
#include <v1model.p4>

#include "../shared/constants.p4"
#include "../shared/types.p4"
#include "../shared/protocol_headers.p4"
#include "../shared/tree_constants.p4"
#include "pool.p4"
#include "shim.p4"
#include "lane.p4"
#include "../shared/lanes.p4"
#include "lanes.p4"
#include "../shared/headers.p4"
#include "../shared/parser.p4"
#include "../shared/checksum.p4"
#include "../shared/switch_address.p4"
#include "../shared/arp.p4"
#include "../shared/echo.p4"
#include "../shared/admission.p4"
#include "../shared/answer.p4"
#include "../shared/copy_rewrite.p4"
#include "../shared/forward.p4"
#include "../shared/counters.p4"
#include "target.p4"
#include "../shared/quorum.p4"
#include "quorum.p4"
#include "../shared/tree.p4"
#include "tree.p4"
#include "header_only.p4"
#include "slot.p4"

control NetsumIngress(inout headers_t hdr, inout target_metadata_t target, inout standard_metadata_t standard) {
    ArriveFromTarget() arrive;
    SwitchAddress() switch_address;
    ArpResponder() arp;
    EchoResponder() echo;
    WorkerAdmission() admission;
    JobQuorum() job_quorum;
    Slot() slot;
    AnswerInTree() answer;
    PassUp() pass_up;
    OutcomeCounters() counters;
    TreeCounters() tree_counters;
    QuorumCounters() quorum_counters;
    Forward() forward;
    LeaveToTarget() leave;

    apply {
        arrive.apply(hdr, target.shared, standard);
        if (hdr.packet_out.isValid()) {
            target.shared.egress_port = (port_t) hdr.packet_out.egress_port;
            target.shared.send = SEND_TO_PORT;
            hdr.packet_out.setInvalid();
        } else if (hdr.ethernet.isValid()) {
            switch_address.apply(target.shared);
            if (!target.shared.is_own) {
                forward.apply(hdr, target.shared);
            } else if (hdr.arp.isValid()) {
                arp.apply(hdr, target.shared);
            } else if (hdr.icmp.isValid()) {
                echo.apply(hdr, target.shared);
            } else if (hdr.ipv4.protocol == PROTOCOL_UDP &&
                       (!hdr.udp.isValid() || hdr.udp.dst_port == NETSUM_UDP_PORT)) {
                // UDP whose port cannot be seen (options, fragments, cut off) counts as meant for the netsum port.
                parent_t parent = { false, 0, 0, 0, 0 };
                quorum_t quorum = { 0, 0 };
                bool congested = false;
                if (target.shared.well_formed) {
                    bool from_parent = hdr.netsum.kind == KIND_RESULT || hdr.netsum.kind == KIND_STATUS;
                    admission.apply(hdr, target.shared);
                    if (!target.shared.admission.admitted || from_parent != (target.shared.admission.worker_bit == 0)) {
                        target.shared.outcome = from_parent ? OUTCOME_MALFORMED : OUTCOME_NOT_ADMITTED;
                    } else if (target.shared.admission.indices_left == 0 ||
                               (bit<32>) target.shared.admission.index >= POOL_INDICES) {
                        target.shared.outcome = OUTCOME_OUT_OF_RANGE;
                    } else if (hdr.netsum.kind == KIND_STATUS) {
                        target.shared.outcome = OUTCOME_STATUS_PASSED_DOWN;
                        target.shared.is_answer = true;
                    } else {
                        if (hdr.netsum.quorum == 1) {
                            job_quorum.apply(hdr, quorum);
                        }
                        if (hdr.netsum.quorum == 1 && quorum.workers == 0) {
                            target.shared.outcome = OUTCOME_NOT_ADMITTED;
                        } else {
                            slot.apply(hdr, target.shared, quorum, parent, target.header_only, congested);
                        }
                    }
                } else {
                    target.shared.outcome = OUTCOME_MALFORMED;
                }
                if (target.shared.is_answer) {
                    answer.apply(hdr, target.shared, quorum);
                } else if (parent.present) {
                    pass_up.apply(hdr, target.shared, parent);
                    if (hdr.netsum.kind == KIND_CONTRIBUTE && target.header_only == target.shared.admission.full_mask) {
                        hdr.netsum.flags = hdr.netsum.flags | FLAG_HEADER_ONLY; // No child needs the lanes.
                    }
                }
                if (congested && (hdr.netsum.kind == KIND_RESULT || hdr.netsum.kind == KIND_CONTRIBUTE)) {
                    hdr.netsum.flags = hdr.netsum.flags | FLAG_CONGESTED;
                }
                counters.apply(hdr, target.shared);
                tree_counters.apply(hdr, target.shared, parent.present);
                quorum_counters.apply(hdr, target.shared);
            }
        }
        leave.apply(target.shared, standard);
    }
}

control NetsumEgress(inout headers_t hdr, inout target_metadata_t target, inout standard_metadata_t standard) {
    CopyRewrite() copy_rewrite;
    CutCopy() cut_copy;

    apply {
        bool wanted = true;
        if (target.shared.is_answer) {
            if (target.shared.send == SEND_TO_ONE_OF_GROUP && standard.egress_rid != (bit<16>) hdr.netsum.worker_id + 1) {
                wanted = false;
            } else {
                copy_rewrite.apply(hdr, standard.egress_rid, wanted);
                cut_copy.apply(hdr, target.header_only, standard.egress_rid);
            }
        } else if (target.shared.send == SEND_TO_OTHERS && standard.egress_port == target.shared.ingress_port) {
            wanted = false;
        }
        if (!wanted) {
            mark_to_drop(standard);
        } else if (standard.egress_port == CPU_PORT) {
            hdr.packet_in.setValid();
            hdr.packet_in.ingress_port = (bit<16>) target.shared.ingress_port;
        }
    }
}

V1Switch(TreeParser(), VerifyIpv4(), NetsumIngress(), NetsumEgress(), ComputeIpv4(), TargetDeparser()) main;
