"""Captures of links with virtual times, as pcap files with nanoseconds."""

from pathlib import Path
from typing import Final

import numpy as np

from netsum_common.pcap import FILE_HEADER, record
from sim.frames import headers
from sim.network.engine.engine_records import PS_PER_NS
from sim.network.engine.packets import LINK_HEADER_BYTES
from sim.network.engine.trace import LEAVES
from sim.network.network import Network

_NO_PORT: Final = 9  # The discard service: packets of peers and background traffic carry nothing.


def write_capture(network: Network, number: int, path: Path) -> None:
    """Write the packets that have left by one direction of a link; virtual time 0 is 1970.

    Packets of peers and of background traffic are only sizes here: they are written as UDP headers to the discard port.
    """
    link = network.link_records[number]
    source, target = network.nodes[link["from_node"]], network.nodes[link["to_node"]]
    ends = (source.mac, source.ip), (target.mac, target.ip)
    with path.open("wb") as file:
        file.write(FILE_HEADER)
        for rows, frames in network.trace.parts:
            chosen = np.flatnonzero((rows["where"] == number) & (rows["what"] == LEAVES))
            for at in chosen.tolist():
                row = rows[at]
                time_ns = int(row["end_ps"]) // PS_PER_NS
                kept, length = int(row["kept"]), int(row["length"])
                frame = frames[at, :kept].tobytes() if kept else _plain_frame(ends, length)
                file.write(record(time_ns, frame, length))


def _plain_frame(ends: tuple[tuple[str, str], tuple[str, str]], length: int) -> bytes:
    size = max(length - LINK_HEADER_BYTES, 28)
    return headers(*ends, _NO_PORT, _NO_PORT, size, size - 20)
