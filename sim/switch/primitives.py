"""The primitives and hashes a v1model target offers: names and argument counts, checked at load."""

from sim.switch import ir

HASHES = frozenset(
    ["crc16", "crc16_custom", "crc32", "crc32_custom", "crcCCITT", "csum16", "cksum16", "xor16", "identity"]
)

_ARGUMENTS = {
    "assign": 2,
    "assign_VL": 2,
    "assign_header": 2,
    "assign_union": 2,
    "assign_header_stack": 2,
    "assign_union_stack": 2,
    "push": 2,
    "pop": 2,
    "_jump": 1,
    "_jump_if_zero": 2,
    "exit": 0,
    "assume": 1,
    "assert": 1,
    "log_msg": 2,
    "modify_field": 2,
    "add_to_field": 2,
    "subtract_from_field": 2,
    "add": 3,
    "subtract": 3,
    "bit_xor": 3,
    "bit_or": 3,
    "bit_and": 3,
    "shift_left": 3,
    "shift_right": 3,
    "modify_field_rng_uniform": 3,
    "modify_field_with_hash_based_offset": 4,
    "drop": 0,
    "mark_to_drop": 1,
    "generate_digest": 2,
    "add_header": 1,
    "add_header_fast": 1,
    "remove_header": 1,
    "copy_header": 2,
    "clone_ingress_pkt_to_egress": 2,
    "clone_egress_pkt_to_egress": 2,
    "resubmit": 1,
    "recirculate": 1,
    "no_op": 0,
    "execute_meter": 3,
    "count": 2,
    "register_read": 3,
    "register_write": 3,
    "truncate": 1,
}

_CONSTANT_LAST = {
    "_jump": "jump to a place",
    "_jump_if_zero": "jump to a place",
    "push": "push by a number",
    "pop": "pop by a number",
}


def check_primitive(primitive: ir.Primitive) -> str | None:
    """Return what is unsupported about a primitive call, or None."""
    expected = _ARGUMENTS.get(primitive.op)
    if expected is None:
        return f"primitive {primitive.op!r}"
    if len(primitive.args) != expected:
        return f"primitive {primitive.op!r} with {len(primitive.args)} arguments (BMv2's takes {expected})"
    if primitive.op in _CONSTANT_LAST and not isinstance(primitive.args[-1], ir.Const):
        return f"a {_CONSTANT_LAST[primitive.op]} that is not a constant"
    return None
