"""The compiled program in a controller's message: BMv2 JSON as it is, or wrapped as p4lang's tutorials wrap it.

Early controllers of BMv2 send a protobuf message, `p4.tmp.P4DeviceConfig` {reassign: bool = 1; extras = 2; device_data:
bytes = 3}, whose ``device_data`` is the JSON. BMv2 takes both, and so does this switch. Reading returns the bytes that were sent.
"""

from typing import Final

_VARINT, _BYTES = 0, 2
_REASSIGN: Final = (1, _VARINT)
_EXTRAS: Final = (2, _BYTES)
_DEVICE_DATA: Final = (3, _BYTES)


def device_data(sent: bytes) -> bytes:
    """Return the compiled program; bytes that are no `P4DeviceConfig` are returned unchanged."""
    if sent.lstrip()[:1] == b"{":
        return sent
    found, at = sent, 0
    try:
        while at < len(sent):
            tag, at = _varint(sent, at)
            field = (tag >> 3, tag & 7)
            if field == _REASSIGN:
                _, at = _varint(sent, at)
                continue
            if field not in (_EXTRAS, _DEVICE_DATA):
                return sent
            length, at = _varint(sent, at)
            if at + length > len(sent):
                return sent
            if field == _DEVICE_DATA:
                found = sent[at : at + length]
            at += length
    except IndexError:  # Cut off in the middle of a number.
        return sent
    return found


def _varint(encoded: bytes, at: int) -> tuple[int, int]:
    """Read a protobuf varint; returns it and where the next field begins."""
    value = shift = 0
    while True:
        byte = encoded[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
