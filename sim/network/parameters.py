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
    """Faults of a link's packets, drawn for each direction separately."""

    # loss, duplicate: probabilities per packet.
    loss: float = 0.0
    duplicate: float = 0.0
    jitter_ns: int = 0  # Maximum additional latency, uniformly distributed; large values reorder packets.
    # straggle, straggle_ns: the share of packets with additional latency, and its maximum.
    straggle: float = 0.0
    straggle_ns: int = 0
    bursts: Bursts | None = None  # Losses in bursts; None: none.

    @property
    def any(self) -> bool:
        """Whether any fault is configured."""
        return self != Faults()


@dataclass(frozen=True)
class LinkParameters:
    """Parameters of a link, which apply to each direction separately."""

    rate_bps: int | None = None  # Bits per second; None: a packet takes no time.
    latency_ns: int = 1000  # Propagation delay.
    mtu: int = 1500  # Bytes of an IP packet; longer ones are lost.
    queue_bytes: int | None = (
        None  # Limit of queued bytes, beyond which arriving packets are dropped; None: no limit.
    )
    mark_bytes: int | None = None  # Queue length above which packets are marked (ECN).
    framing_bytes: int = ETHERNET_FRAMING_BYTES  # Bytes on the wire beside each frame.
    faults: Faults = field(default_factory=Faults)  # Faults of the link's packets.

    def with_faults(self, **changes: Any) -> "LinkParameters":
        """Return the same link with other faults."""
        return replace(self, faults=replace(self.faults, **changes))


@dataclass(frozen=True)
class BackgroundTraffic:
    """Background traffic of a host."""

    rate_bps: int  # Bits per second of frames, without framing.
    packet_bytes: int = 1514  # Bytes of a frame.
    burst: int = 1  # Packets sent at once.
    gaps: str = "even"  # Gaps between bursts (`engine_records.GAPS`).
    start_ns: int = 0
    stop_ns: int = 10**12


@dataclass(frozen=True)
class HostCost:
    """Processing times of a host for packets, which it handles one after the other."""

    # send_ns, receive_ns: time for each packet.
    send_ns: float = 0.0
    receive_ns: float = 0.0
    byte_ns: float = 0.0  # Time for each byte of a frame, in either direction.
    slower: float = 1.0  # Factor of all these times; above 1, the host is a straggler.


@dataclass(frozen=True)
class SwitchCost:
    """Processing times and queue of a switch."""

    # Latency of the pipeline, which any number of packets pass at once.
    latency_ns: float = 0.0
    # Time for which each packet occupies the switch, while others queue; 0: the switch keeps up with all ports.
    service_ns: float = 0.0
    # Limit of queued packets, beyond which arriving packets are dropped; None: no limit.
    queue_pkts: int | None = None
