// netsum for v1model targets (BMv2, the embedded engine). Compile with -D LANES=64 or -D LANES=256.

#include <core.p4>
#include <v1model.p4>

#include "../shared/constants.p4"
#include "../shared/types.p4"
#include "../shared/protocol_headers.p4"
#include "../shared/tree_constants.p4"
#include "../shared/quorum_constants.p4"
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
#include "slot.p4"

control NetsumIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
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
        arrive.apply(hdr, meta, standard);
        if (hdr.packet_out.isValid()) {
            meta.egress_port = (port_t) hdr.packet_out.egress_port;
            meta.send = SEND_TO_PORT;
            hdr.packet_out.setInvalid();
        } else if (hdr.ethernet.isValid()) {
            switch_address.apply(meta);
            if (!meta.is_own) {
                forward.apply(hdr, meta);
            } else if (hdr.arp.isValid()) {
                arp.apply(hdr, meta);
            } else if (hdr.icmp.isValid()) {
                echo.apply(hdr, meta);
            } else if (hdr.ipv4.protocol == PROTOCOL_UDP &&
                       (!hdr.udp.isValid() || hdr.udp.dst_port == NETSUM_UDP_PORT)) {
                // UDP whose port cannot be seen (options, fragments, cut off) counts as meant for the netsum port.
                parent_t parent = { false, 0, 0, 0, 0 };
                bool to_first_child = false;
                quorum_t quorum = { 0, 0 };
                if (meta.well_formed) {
                    bool from_parent = hdr.netsum.kind == KIND_RESULT || hdr.netsum.kind == KIND_STATUS;
                    admission.apply(hdr, meta);
                    if (!meta.admission.admitted || from_parent != (meta.admission.worker_bit == 0)) {
                        meta.outcome = from_parent ? OUTCOME_MALFORMED : OUTCOME_NOT_ADMITTED;
                    } else if (meta.admission.room == 0 || (bit<32>) meta.admission.index >= POOL_INDICES) {
                        meta.outcome = OUTCOME_OUT_OF_RANGE;
                    } else if (hdr.netsum.kind == KIND_STATUS) {
                        meta.outcome = OUTCOME_STATUS_PASSED_DOWN;
                        meta.is_answer = true;
                    } else {
                        bool wants_quorum = hdr.netsum.flags & FLAG_QUORUM != 0;
                        if (wants_quorum) {
                            job_quorum.apply(hdr, quorum);
                        }
                        if (wants_quorum && quorum.workers == 0) {
                            meta.outcome = OUTCOME_NOT_ADMITTED;
                        } else {
                            slot.apply(hdr, meta, quorum, parent, to_first_child);
                        }
                    }
                } else {
                    meta.outcome = OUTCOME_MALFORMED;
                }
                if (meta.is_answer) {
                    answer.apply(hdr, meta, to_first_child, quorum);
                } else if (parent.present) {
                    pass_up.apply(hdr, meta, parent);
                }
                counters.apply(hdr, meta);
                tree_counters.apply(hdr, meta, parent.present);
                quorum_counters.apply(hdr, meta);
            }
        }
        leave.apply(meta, standard);
    }
}

control NetsumEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    CopyRewrite() copy_rewrite;

    apply {
        bool wanted = true;
        if (meta.is_answer) {
            if (meta.send == SEND_TO_ONE_OF_GROUP && standard.egress_rid != (bit<16>) hdr.netsum.worker_id + 1) {
                wanted = false;
            } else {
                copy_rewrite.apply(hdr, standard.egress_rid, wanted);
            }
        } else if (meta.send == SEND_TO_OTHERS && standard.egress_port == meta.ingress_port) {
            wanted = false;
        }
        if (!wanted) {
            mark_to_drop(standard);
        } else if (standard.egress_port == CPU_PORT) {
            hdr.packet_in.setValid();
            hdr.packet_in.ingress_port = (bit<16>) meta.ingress_port;
        }
    }
}

V1Switch(TreeParser(), VerifyIpv4(), NetsumIngress(), NetsumEgress(), ComputeIpv4(), TargetDeparser()) main;
