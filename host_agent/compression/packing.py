"""Small integers in wide ones: fields that sum without a carry in int32 lanes, and fields of bytes for an all-gather."""

import torch
from torch import Tensor

_SUM_BITS = 31  # Bits of a lane that the sum of all workers may use: what stays non-negative in int32.


def field_bits(largest: int, workers: int) -> int:
    """Bits that the sum of `workers` fields needs, each a value in [−largest, largest] plus an offset of `largest`."""
    return (2 * largest * workers).bit_length()


def fields_per_lane(largest: int, workers: int) -> int:
    """Return how many fields fit into a lane, at least one.

    Raises ValueError if not even one fits: 2 · largest · workers ≥ 2³¹.
    """
    fields = _SUM_BITS // field_bits(largest, workers)
    if fields == 0:
        raise ValueError(f"{workers} values of up to {largest} do not fit a lane of {_SUM_BITS} bits")
    return fields


def pack_lanes(values: Tensor, largest: int, workers: int) -> Tensor:
    """Pack integers into int32 lanes whose sum over the workers carries from no field into the next.

    `values` (int32 or int64 tensor, one dimension): in [−largest, largest]. `largest`, `workers`: determine the width of a
    field. Returns ceil(len(values) / fields_per_lane) lanes, each below 2³¹ / workers, so that the sum needs no
    second pass (int32 tensor).
    """
    fields, bits = fields_per_lane(largest, workers), field_bits(largest, workers)
    offset = torch.zeros(-(-values.numel() // fields) * fields, dtype=torch.int32, device=values.device)
    offset[: values.numel()] = values + largest
    return _joined(offset.view(-1, fields), bits)


def unpack_lanes(lanes: Tensor, elements: int, largest: int, workers: int, count: int) -> Tensor:
    """Return the sums of `count` workers' values from the sum of their lanes, as int32."""
    fields, bits = fields_per_lane(largest, workers), field_bits(largest, workers)
    values = torch.stack([(lanes >> (field * bits)) & ((1 << bits) - 1) for field in range(fields)], dim=1)
    return values.view(-1)[:elements] - count * largest


def pack_bits(values: Tensor, bits: int) -> Tensor:
    """Pack unsigned integers below 2^bits into bytes; `bits` is 1, 2, 4 or 8."""
    per_byte = 8 // bits
    padded = torch.zeros(-(-values.numel() // per_byte) * per_byte, dtype=torch.uint8, device=values.device)
    padded[: values.numel()] = values.to(torch.uint8)
    return _joined(padded.view(-1, per_byte), bits)


def _joined(rows: Tensor, bits: int) -> Tensor:
    """Join the fields in each row to one word, the first in the lowest bits."""
    packed = rows[:, 0].clone()
    for field in range(1, rows.shape[1]):
        packed |= rows[:, field] << (field * bits)
    return packed


def unpack_bits(packed: Tensor, elements: int, bits: int) -> Tensor:
    """Return what `pack_bits` packed, as uint8."""
    per_byte = 8 // bits
    mask = (1 << bits) - 1
    return torch.stack([(packed >> (field * bits)) & mask for field in range(per_byte)], dim=1).view(-1)[
        :elements
    ]


def in_blocks(tensor: Tensor, size: int) -> Tensor:
    """Return the elements in rows of `size`, the last one filled up with zeros."""
    flat = tensor.reshape(-1)
    rows = -(-flat.numel() // size)
    return torch.nn.functional.pad(flat, (0, rows * size - flat.numel())).view(rows, size)


def bits_that_pack(levels: int) -> int:
    """Return the smallest of 1, 2, 4 and 8 bits that holds this many different values."""
    return next(bits for bits in (1, 2, 4, 8) if levels <= 1 << bits)


def stochastic_round(values: Tensor, generator: torch.Generator) -> Tensor:
    """Round to a neighbouring integer, up with the probability of the fraction, so that the expectation is the value."""
    floor = values.floor()
    dice = torch.rand(values.shape, generator=generator, device=values.device, dtype=values.dtype)
    return floor + (dice < values - floor)
