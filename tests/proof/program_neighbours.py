"""A compiled program's treatment of frames that are not of the protocol: ARP, echo, forwarding, frames of the controller."""

from collections.abc import Iterator

import z3

from tests.proof.program_step import Fields, Step, Term
from tests.proof.program_step import action_number as number

TTL, ARP_REPLY, ECHO_REPLY, SEND_TO_OTHERS = 64, 2, 0, 3
_DROPPED, _IN = 511, "NetsumIngress"


def _is_unicast(mac: Term) -> Term:
    return z3.Extract(40, 40, mac) == 0


def _is_checksum_after(new: Term, old: Term, decrease: int) -> Term:
    """Whether a checksum is right after a word has become smaller: RFC 1624, sums of ones' complement."""
    total = z3.ZeroExt(16, old) + decrease
    modulus = z3.BitVecVal(0xFFFF, 32)
    return z3.And(z3.URem(z3.ZeroExt(16, new), modulus) == z3.URem(total, modulus), new != 0xFFFF)


def _same_but(step: Step, *changed: tuple[str, str]) -> Term:
    """Whether all headers are as before, but for some fields."""
    headers = (
        "ethernet",
        "arp",
        "ipv4",
        "icmp",
        "udp",
        "netsum",
        "status",
        "lanes",
        "packet_out",
        "packet_in",
    )
    kept = [key for key in step.start if key[0] in headers and key not in changed]
    return z3.And(*(step.end[key] == step.start[key] for key in kept if step.end[key] is not step.start[key]))


def lemmas(step: Step, before: dict[str, Term], after: dict[str, Term]) -> Iterator[tuple[str, list[Term]]]:
    """Iterate over lemmas: a name, and terms that cannot hold together. `before`, `after`: the program's metadata."""
    s, end = step.start, step.end
    standard = "standard_metadata"
    arrived, group = s[standard, "ingress_port"], s[standard, "mcast_grp"]
    spec = end[standard, "egress_spec"]
    nowhere = z3.And(spec == _DROPPED, end[standard, "mcast_grp"] == 0)

    def leaves_by(port: Term) -> Term:
        return z3.And(spec == port, end[standard, "mcast_grp"] == group)

    def valid(header: str, fields: Fields = s) -> Term:
        return fields[header, "$valid$"] == 1

    own = step.chosen[f"{_IN}.switch_address.switch_address"] == number(
        step.program, f"{_IN}.switch_address.own_address"
    )
    own_mac = step.given[f"{_IN}.switch_address.own_address"]["mac"]
    ethernet = z3.And(valid("ethernet"), z3.Not(valid("packet_out")))
    unicast = _is_unicast(s["ethernet", "src"])
    asks = before["is_request"] == 1
    yield "a frame of the controller leaves by the port it names, as it is", [
        valid("packet_out"),
        z3.Not(z3.And(
            leaves_by(z3.Extract(8, 0, s["packet_out", "egress_port"])), z3.Not(valid("packet_out", end)),
            _same_but(step, ("packet_out", "$valid$")),
        )),
    ]  # fmt: skip
    yield (
        "what is no frame leaves nowhere",
        [z3.Not(valid("packet_out")), z3.Not(valid("ethernet")), z3.Not(nowhere)],
    )
    back = [("ethernet", "src"), ("ethernet", "dst")]
    turned = z3.And(end["ethernet", "dst"] == s["ethernet", "src"], end["ethernet", "src"] == own_mac)
    is_arp = z3.And(ethernet, own, valid("arp"))
    replied = z3.And(
        turned, leaves_by(arrived), end["arp", "operation"] == ARP_REPLY,
        end["arp", "target_mac"] == s["arp", "sender_mac"], end["arp", "target_ip"] == s["arp", "sender_ip"],
        end["arp", "sender_mac"] == own_mac, end["arp", "sender_ip"] == s["arp", "target_ip"],
        _same_but(step, *back, *(("arp", n) for n in ("operation", "target_mac", "target_ip", "sender_mac", "sender_ip"))),
    )  # fmt: skip
    yield "an ARP request for the switch is answered to its sender", [is_arp, asks, unicast, z3.Not(replied)]
    yield "any other ARP for the switch ends here", [is_arp, z3.Not(z3.And(asks, unicast)), z3.Not(nowhere)]
    is_echo = z3.And(ethernet, own, z3.Not(valid("arp")), valid("icmp"))
    answerable = z3.And(
        asks, unicast, s[standard, "checksum_error"] != 1, s["ipv4", "src"] != s["ipv4", "dst"]
    )
    echoed = z3.And(
        turned, leaves_by(arrived), end["icmp", "type"] == ECHO_REPLY, end["ipv4", "ttl"] == TTL, after["ipv4_is_new"] == 1,
        end["ipv4", "src"] == s["ipv4", "dst"], end["ipv4", "dst"] == s["ipv4", "src"],
        _is_checksum_after(end["icmp", "checksum"], s["icmp", "checksum"], 8 << 8),
        _same_but(step, *back, ("icmp", "type"), ("icmp", "checksum"), *(("ipv4", n) for n in ("src", "dst", "ttl"))),
    )  # fmt: skip
    yield "an echo request is answered to its sender", [is_echo, answerable, z3.Not(echoed)]
    yield "any other ICMP for the switch ends here", [is_echo, z3.Not(answerable), z3.Not(nowhere)]
    yield from _forwarded(step, before, after, z3.And(ethernet, z3.Not(own)), leaves_by, nowhere)


def _forwarded(
    step: Step,
    before: dict[str, Term],
    after: dict[str, Term],
    passes: Term,
    leaves_by: object,
    nowhere: Term,
) -> Iterator[tuple[str, list[Term]]]:
    assert callable(leaves_by)
    s, end, l2, l3 = step.start, step.end, f"{_IN}.forward.l2_forward", f"{_IN}.forward.l3_route"

    def chosen(table: str, action: str) -> Term:
        """Return whether a table takes an action; its last one stands for all other numbers."""
        actions = step.program.ingress.tables[table].actions
        [wanted] = [a for a in actions if step.program.actions[a].name == f"{_IN}.forward.{action}"]
        others = [step.chosen[table] == other for other in actions[:-1]]
        return z3.Not(z3.Or(*others)) if wanted == actions[-1] else step.chosen[table] == wanted

    port = step.given[f"{_IN}.forward.forward"]["port"]
    entry = step.given[f"{_IN}.forward.route"]
    hit = step.hit[l2]
    returns = z3.And(hit, chosen(l2, "forward"), port == s["standard_metadata", "ingress_port"])
    to_router = z3.And(
        z3.Not(hit), s["ipv4", "$valid$"] == 1, _is_unicast(s["ethernet", "dst"]), z3.UGT(s["ipv4", "ttl"], 1),
        s["standard_metadata", "checksum_error"] != 1,
    )  # fmt: skip
    routed, counted = z3.And(to_router, chosen(l3, "route")), z3.And(to_router, step.hit[l3])
    to_port = z3.And(chosen(l2, "forward"), z3.Not(returns), z3.Not(routed))
    floods = z3.And(chosen(l2, "flood"), z3.Not(routed))
    flooded = z3.And(
        end["standard_metadata", "mcast_grp"] == step.given[f"{_IN}.forward.flood"]["mcast_group"],
        after["send"] == SEND_TO_OTHERS,
    )
    yield "a frame for a known station leaves by its port", [passes, to_port, z3.Not(leaves_by(port))]
    yield "a frame for others goes to all ports but its own", [passes, floods, z3.Not(flooded)]
    yield "a routed packet leaves by its route's port", [passes, routed, z3.Not(leaves_by(entry["port"]))]
    yield (
        "any other frame is not forwarded",
        [passes, z3.Not(z3.Or(to_port, floods, routed)), z3.Not(nowhere)],
    )
    addressed = z3.And(end["ethernet", "src"] == entry["src_mac"], end["ethernet", "dst"] == entry["dst_mac"])
    yield "a routed packet has its route's addresses", [passes, routed, z3.Not(addressed)]
    older = z3.And(
        end["ipv4", "ttl"] == s["ipv4", "ttl"] - 1,
        _is_checksum_after(end["ipv4", "checksum"], s["ipv4", "checksum"], 1 << 8),
    )
    yield "a routed packet has lived longer, with a right checksum", [passes, counted, z3.Not(older)]
    kept = _same_but(step, ("ipv4", "ttl"), ("ipv4", "checksum"), ("ethernet", "src"), ("ethernet", "dst"))
    yield "nothing else of a forwarded frame changes", [passes, z3.Not(kept)]
    unchanged = z3.And(*(end["ipv4", n] == s["ipv4", n] for n in ("ttl", "checksum")))
    yield "a frame that is not routed stays as it is", [
        passes, z3.Or(z3.And(z3.Not(counted), z3.Not(unchanged)), z3.And(z3.Not(routed), z3.Not(_same_but(
            step, ("ipv4", "ttl"), ("ipv4", "checksum")
        )))),
    ]  # fmt: skip
