// netsum for Tofino. Compile with --target tofino -D LANES=32, or --target tofino2 -D LANES=64; for more lanes than that,
// with -D PASSES=2, 4 or 8 (passes.p4); for a switch in a tree of switches, with -D TREE=1 (tree.p4).

#include <core.p4>
#if __TARGET_TOFINO__ == 1
#include <tna.p4>
#else
#include <t2na.p4>
#endif

#include "../shared/constants.p4"
#include "../shared/types.p4"
#include "../shared/protocol_headers.p4"
#include "../shared/tree_constants.p4"
#include "pool.p4"
#include "shim.p4"
#include "../shared/lanes.p4"
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
#include "../shared/tree.p4"
#include "../shared/quorum.p4"
#include "bridge.p4"
#include "slot.p4"

// The variants. Each has JobSettings, Reduction, AddressCopy, ArrivingParser and LeavingDeparser.
#if TREE
#include "one_pass.p4"
#include "tree.p4"
#elif PASSES == 1
#include "one_pass.p4"
#include "single.p4"
#include "once.p4"
#else
#include "single.p4"
#include "passes.p4"
#endif

#include "target.p4"

// The output and the operand of a register must not be cut into pieces: the compiler does not always put those
// together again.
@pa_container_size("ingress", "reduction_slot_found.collective", 32)
@pa_container_size("ingress", "reduction_slot_found.before", 32)
@pa_container_size("ingress", "reduction_slot_found.seed", 32)
@pa_container_size("ingress", "reduction_slot_found.held_chunk", 32)
control NetsumIngress(inout target_headers_t hdr, inout metadata_t meta,
                      in ingress_intrinsic_metadata_t intrinsic,
                      in ingress_intrinsic_metadata_from_parser_t from_parser,
                      inout ingress_intrinsic_metadata_for_deparser_t for_deparser,
                      inout ingress_intrinsic_metadata_for_tm_t for_tm) {
    ArriveFromTarget() arrive;
    SwitchAddress() switch_address;
    ArpResponder() arp;
    EchoResponder() echo;
    WorkerAdmission() admission;
    JobSettings() settings;
    Reduction() reduction;
    Forward() forward;
    LeaveToTarget() leave;

    apply {
        job_t job = NO_JOB;
        worker_bitmap_t header_only = 0; // of a RESULT to a group: whose copies are header-only
        // The following tables need only the parser's output, so they share the first stage.
        arrive.apply(hdr.frame, meta, from_parser);
        switch_address.apply(meta);
        if (hdr.frame.netsum.isValid()) {
            admission.apply(hdr.frame, meta);
            settings.apply(hdr.frame, job);
        }
        if (hdr.frame.packet_out.isValid()) {
            meta.egress_port = (port_t) hdr.frame.packet_out.egress_port;
            meta.send = SEND_TO_PORT;
            hdr.frame.packet_out.setInvalid();
        } else if (hdr.frame.ethernet.isValid()) {
            if (!meta.is_own) {
                forward.apply(hdr.frame, meta);
            } else if (hdr.frame.arp.isValid()) {
                arp.apply(hdr.frame, meta);
            } else if (hdr.frame.icmp.isValid()) {
                echo.apply(hdr.frame, meta);
            } else if (hdr.frame.ipv4.protocol == PROTOCOL_UDP &&
                       (!hdr.frame.udp.isValid() || hdr.frame.udp.dst_port == NETSUM_UDP_PORT)) {
                // UDP whose port cannot be seen (options, fragments, cut off) counts as meant for the netsum port.
                reduction.apply(hdr, meta, job, header_only);
            }
        }
        leave.apply(hdr, meta, header_only, for_deparser, for_tm);
    }
}

control NetsumEgress(inout target_headers_t hdr, inout egress_metadata_t meta,
                     in egress_intrinsic_metadata_t intrinsic,
                     in egress_intrinsic_metadata_from_parser_t from_parser,
                     inout egress_intrinsic_metadata_for_deparser_t for_deparser,
                     inout egress_intrinsic_metadata_for_output_port_t for_port) {
    AddressCopy() address_copy;

    action shorten() {
        hdr.frame.netsum.flags = 0;
        hdr.frame.udp.bytes = UDP_BYTES + NETSUM_HEADER_BYTES;
        hdr.frame.ipv4.total_bytes = IPV4_BYTES + UDP_BYTES + NETSUM_HEADER_BYTES;
    }

    apply {
        bool wanted = true;
        if (meta.is_header_only) {
            shorten();
        }
        address_copy.apply(hdr.bridge, intrinsic.egress_rid, hdr.frame, meta, wanted);
        if (hdr.bridge.leaving == LEAVING_TO_OTHERS && intrinsic.egress_port == hdr.bridge.ingress_port) {
            wanted = false;
        }
        if (!wanted) {
            for_deparser.drop_ctl = 1;
        } else if (intrinsic.egress_port == CPU_PORT) {
            hdr.frame.packet_in.setValid();
            hdr.frame.packet_in.ingress_port = (bit<16>) hdr.bridge.ingress_port;
        }
    }
}

Pipeline(TargetParser(), NetsumIngress(), TargetDeparser(),
         TargetEgressParser(), NetsumEgress(), TargetEgressDeparser()) pipe;

// All metadata starts as zeros, as the controls of both targets expect.
@pa_auto_init_metadata
#if LANES >= 16 && PASSES == 1
// So far Tofino 1's egress parser skips the lanes of a RESULT only if it has one packet at a time.
@command_line("--disable-parse-max-depth-limit")
#endif
Switch(pipe) main;
