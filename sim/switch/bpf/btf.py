"""Type information (BTF) for maps whose values the kernel must understand: here, a lock in each."""

import struct

_INT, _STRUCT = 1, 4
LOCK_BYTES = 64  # A cache line each, so that processors with different slots do not wait for each other's.
# The numbers of the types below: that of the key, that of the value.
LOCK_TYPES = (1, 3)


def _type(name: int, kind: int, size: int, rest: bytes, members: int = 0) -> bytes:
    return struct.pack("=III", name, kind << 24 | members, size) + rest


def lock_btf(value_bytes: int = LOCK_BYTES) -> bytes:
    """Return the types ``unsigned int``, ``struct bpf_spin_lock {unsigned int val;}`` and a struct that begins with one."""
    strings = b"\0unsigned int\0bpf_spin_lock\0val\0slot\0lock\0"
    at = {name: strings.index(b"\0" + name + b"\0") + 1 for name in strings.strip(b"\0").split(b"\0")}

    def member(name: bytes, kind: int) -> bytes:
        return struct.pack("=III", at[name], kind, 0)

    types = (
        _type(at[b"unsigned int"], _INT, 4, struct.pack("=I", 32))
        + _type(at[b"bpf_spin_lock"], _STRUCT, 4, member(b"val", 1), 1)
        + _type(at[b"slot"], _STRUCT, value_bytes, member(b"lock", 2), 1)
    )
    header = struct.pack("=HBBIIIII", 0xEB9F, 1, 0, 24, 0, len(types), len(types), len(strings))
    return header + types + strings
