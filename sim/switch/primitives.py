"""The primitives and hashes a v1model target offers: names and argument counts, checked at load."""

from sim.switch import ir

HASHES = frozenset(
    ["crc16", "crc16_custom", "crc32", "crc32_custom", "csum16", "cksum16", "xor16", "identity"]
)

_ARGUMENTS = {
    name: count
    for count, names in (
        (0, "exit"),
        (1, "_jump assume assert mark_to_drop add_header remove_header resubmit recirculate truncate"),
        (
            2,
            "assign assign_VL assign_header assign_union assign_header_stack assign_union_stack push pop "
            "_jump_if_zero log_msg generate_digest clone_ingress_pkt_to_egress clone_egress_pkt_to_egress count",
        ),
        (3, "modify_field_rng_uniform execute_meter register_read register_write"),
        (4, "modify_field_with_hash_based_offset"),
    )
    for name in names.split()
}
"""How many arguments each primitive takes."""

_CONSTANT_LAST = {
    "_jump": "jump to a place",
    "_jump_if_zero": "jump to a place",
    "push": "push by a number",
    "pop": "pop by a number",
}


def check_primitive(primitive: ir.Primitive) -> str | None:
    """Return the unsupported feature of a primitive call, or None."""
    expected = _ARGUMENTS.get(primitive.op)
    if expected is None:
        return f"primitive {primitive.op!r}"
    if len(primitive.args) != expected:
        return f"primitive {primitive.op!r} with {len(primitive.args)} arguments (BMv2's takes {expected})"
    if primitive.op in _CONSTANT_LAST and not isinstance(primitive.args[-1], ir.Const):
        return f"a {_CONSTANT_LAST[primitive.op]} that is not a constant"
    return None
