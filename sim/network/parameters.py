"""What links, hosts and switches are like, as plain values that are checked where they are made."""

from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

from netsum_common.errors import NetsumError

ETHERNET_FRAMING_BYTES: Final = 24
"""Preamble, check sequence and gap between frames: what a wire carries beside a frame."""
MAX_RATE_BPS: Final = 10**12
MAX_TIME_NS: Final = 3600 * 10**9


class ParameterError(NetsumError, ValueError):
    """A value is out of range; the message names it and says what was expected."""


def _check(owner: Any, name: str, low: float, high: float, what: str) -> None:
    value = getattr(owner, name)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        raise ParameterError(f"{name}: expected {what}, found {value!r}")


@dataclass(frozen=True)
class Bursts:
    """Losses in bursts, after Gilbert and Elliott: a link is good or bad, and may change with every packet."""

    # to_bad, to_good: probabilities of the change, per packet.
    to_bad: float
    to_good: float
    # Probability that a packet is lost while the link is bad; while it is good, that of `Faults.loss`.
    loss_bad: float = 1.0

    def __post_init__(self) -> None:
        for each in fields(self):
            _check(self, each.name, 0, 1, "a probability, 0 to 1")


@dataclass(frozen=True)
class Faults:
    """What happens to the packets of a link, in each direction by itself."""

    # loss, duplicate: probabilities per packet.
    loss: float = 0.0
    duplicate: float = 0.0
    jitter_ns: int = 0  # Up to so much more latency, evenly distributed; enough of it reorders.
    # straggle, straggle_ns: this share of packets has up to so much more latency.
    straggle: float = 0.0
    straggle_ns: int = 0
    bursts: Bursts | None = None  # Losses in bursts, too.

    def __post_init__(self) -> None:
        for name in ("loss", "duplicate", "straggle"):
            _check(self, name, 0, 1, "a probability, 0 to 1")
        for name in ("jitter_ns", "straggle_ns"):
            _check(self, name, 0, MAX_TIME_NS, "0 to an hour, in ns")

    @property
    def any(self) -> bool:
        """Whether anything can happen at all."""
        return self != Faults()


@dataclass(frozen=True)
class LinkParameters:
    """What a link is like, in each direction by itself."""

    rate_bps: int | None = None  # Bits per second; None: a packet takes no time.
    latency_ns: int = 1000  # How long a bit is under way.
    mtu: int = 1500  # Bytes of an IP packet; longer ones are lost.
    queue_bytes: int | None = None  # What may wait before a packet that comes is dropped; None: anything.
    mark_bytes: int | None = None  # From which queue on packets of flows are marked (ECN).
    framing_bytes: int = ETHERNET_FRAMING_BYTES  # What a packet takes on the wire beside its frame.
    faults: Faults = field(default_factory=Faults)  # What happens to its packets.

    def __post_init__(self) -> None:
        if self.rate_bps is not None:
            _check(self, "rate_bps", 1000, MAX_RATE_BPS, "1 kbit/s to 1 Tbit/s, in bit/s")
        _check(self, "latency_ns", 0, MAX_TIME_NS, "0 to an hour, in ns")
        _check(self, "mtu", 68, 65535, "68 to 65,535 bytes")
        _check(self, "framing_bytes", 0, 1000, "0 to 1,000 bytes")
        for name in ("queue_bytes", "mark_bytes"):
            if getattr(self, name) is not None:
                _check(self, name, 0, 10**12, "0 bytes or more")

    def with_faults(self, **changes: Any) -> "LinkParameters":
        """Return the same link with other faults."""
        return replace(self, faults=replace(self.faults, **changes))


@dataclass(frozen=True)
class HostCost:
    """What a host's processor spends on a packet, one packet after the other."""

    # send_ns, receive_ns: for each packet.
    send_ns: float = 0.0
    receive_ns: float = 0.0
    byte_ns: float = 0.0  # For each byte of a frame, in either direction.
    slower: float = 1.0  # All of it times this: a straggler.

    def __post_init__(self) -> None:
        for name in ("send_ns", "receive_ns", "byte_ns"):
            _check(self, name, 0, MAX_TIME_NS, "0 to an hour, in ns")
        _check(self, "slower", 0.01, 1e6, "a factor, 0.01 to 1,000,000")


@dataclass(frozen=True)
class SwitchCost:
    """How long a switch takes."""

    # From the last bit of a packet to where it may leave; any number of packets at once.
    latency_ns: float = 0.0
    # How long it is busy with each packet, while others queue; 0: it keeps up with all ports.
    service_ns: float = 0.0
    # How many may wait for that before one that comes is dropped; None: any number.
    queue_pkts: int | None = None

    def __post_init__(self) -> None:
        for name in ("latency_ns", "service_ns"):
            _check(self, name, 0, MAX_TIME_NS, "0 to an hour, in ns")
        if self.queue_pkts is not None:
            _check(self, "queue_pkts", 1, 10**9, "1 packet or more")
