"""Parameters of links, hosts and switches, as plain values; `sim.experiments.settings` checks their ranges."""

from dataclasses import dataclass, field, replace
from typing import Any, Final

ETHERNET_FRAMING_BYTES: Final = 24
"""Bytes that a wire carries beside each frame: preamble, check sequence and gap."""


@dataclass(frozen=True)
class Bursts:
    """Losses in bursts, after Gilbert and Elliott: a link is good or bad, and may change with every packet."""

    # to_bad, to_good: probabilities of the change, per packet.
    to_bad: float
    to_good: float
    # Probability that a packet is lost while the link is bad; while it is good, that of `Faults.loss`.
    loss_bad: float = 1.0


@dataclass(frozen=True)
class Faults:
    """Faults of a link's packets, in each direction by itself."""

    # loss, duplicate: probabilities per packet.
    loss: float = 0.0
    duplicate: float = 0.0
    jitter_ns: int = 0  # The most additional latency, evenly distributed; enough of it reorders.
    # straggle, straggle_ns: the share of packets that have additional latency, and the most of it.
    straggle: float = 0.0
    straggle_ns: int = 0
    bursts: Bursts | None = None  # Losses in bursts, too.

    @property
    def any(self) -> bool:
        """Whether anything can happen at all."""
        return self != Faults()


@dataclass(frozen=True)
class LinkParameters:
    """Parameters of a link, in each direction by itself."""

    rate_bps: int | None = None  # Bits per second; None: a packet takes no time.
    latency_ns: int = 1000  # How long a bit is under way.
    mtu: int = 1500  # Bytes of an IP packet; longer ones are lost.
    queue_bytes: int | None = (
        None  # Limit of queued bytes, beyond which arriving packets are dropped; None: no limit.
    )
    mark_bytes: int | None = None  # From which queue on packets of flows are marked (ECN).
    framing_bytes: int = ETHERNET_FRAMING_BYTES  # Bytes on the wire beside each frame.
    faults: Faults = field(default_factory=Faults)  # Faults of the link's packets.

    def with_faults(self, **changes: Any) -> "LinkParameters":
        """Return the same link with other faults."""
        return replace(self, faults=replace(self.faults, **changes))


@dataclass(frozen=True)
class BackgroundTraffic:
    """Background traffic of a host."""

    rate_bps: int  # Counting frames.
    packet_bytes: int = 1514  # Bytes of a frame.
    burst: int = 1  # Packets at once.
    gaps: str = "even"  # Gaps between bursts (`engine_records.GAPS`).
    start_ns: int = 0
    stop_ns: int = 10**12


@dataclass(frozen=True)
class HostCost:
    """Processing times of a host for packets, which it handles one after the other."""

    # send_ns, receive_ns: for each packet.
    send_ns: float = 0.0
    receive_ns: float = 0.0
    byte_ns: float = 0.0  # For each byte of a frame, in either direction.
    slower: float = 1.0  # All of it times this: a straggler.


@dataclass(frozen=True)
class SwitchCost:
    """How long a switch takes."""

    # From the last bit of a packet to where it may leave; any number of packets at once.
    latency_ns: float = 0.0
    # How long it is busy with each packet, while others queue; 0: it keeps up with all ports.
    service_ns: float = 0.0
    # How many may wait for that before one that comes is dropped; None: any number.
    queue_pkts: int | None = None
