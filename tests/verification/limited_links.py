"""Time and bytes of checked and masked sums on limited links, in virtual time: ``python -m tests.verification.limited_links``.

Four workers on a star of 100 Mbit/s sum float32 arrays over the P4 program. Links and packets are simulated, so the machine's
speed and load do not matter: checks and masks add packets and round trips.
"""

import sys
from dataclasses import dataclass
from typing import Final

import numpy as np

from host_agent.collectives import AllReduceRequest
from host_agent.errors import MisuseError
from host_agent.verification.masking import check_cipher
from host_agent.verification.private import private_request
from host_agent.verification.secret import Session, read_secret
from host_agent.verification.verified import VerifiedRequest
from sim.network.parameters import ETHERNET_FRAMING_BYTES, LinkParameters
from sim.network.worker import Plan
from tests.integration.simulated.star import Cables, Star, star_switch

WORKERS: Final = 4
LANES: Final = 256
SLOTS: Final = 64
RATE_BPS: Final = 100_000_000
SIZES: Final = {"64 KiB": 1 << 14, "1 MiB": 1 << 18, "16 MiB": 1 << 22}
MODES: Final = ("plain", "verify", "retry", "private")
_HEADERS: Final = 42 + ETHERNET_FRAMING_BYTES
_SECRET: Final = b"a secret that all workers share "


class Limited(Cables):
    """Cables of a limited rate."""

    def link(self, mtu: int) -> LinkParameters:
        return LinkParameters(rate_bps=RATE_BPS, latency_ns=10_000, mtu=mtu)


@dataclass(frozen=True)
class Cost:
    """Cost of one collective at one worker: milliseconds, and bytes that it sent, with all headers and the wire's framing."""

    ms: float
    sent_bytes: int


def measure(mode: str, size: int) -> Cost:
    """Run two sums of an array, of which the second counts: the first exchanges keys."""
    secret = read_secret(_SECRET) if mode == "private" else None
    sessions = [Session(secret) for _ in range(WORKERS)]

    def plans(rank: int) -> list[Plan]:
        array = np.random.default_rng(rank).normal(size=size).astype(np.float32)
        request = AllReduceRequest(array, sparse="never")
        if mode == "plain":
            return [request.plan] * 2
        made = private_request(request, WORKERS) if mode == "private" else request
        checked = VerifiedRequest(
            made, sessions[rank], "retry" if mode == "retry" else "raise", mode == "private"
        )
        return [checked.plan] * 2

    switch = star_switch(LANES)
    network = Star(switch, Limited(), 0)
    workers = network.add_job(switch.admit(WORKERS, SLOTS), plans)
    network.run()
    last = [worker.outcomes[1] for worker in workers]
    assert not any(outcome.error for outcome in last)
    spent = last[0].statistics
    return Cost(
        max(outcome.statistics.duration_ns for outcome in last) / 1e6,
        spent.bytes_sent + _HEADERS * spent.packets_sent,
    )


def main() -> None:
    """Print each mode's time and bytes, and what they add to those of a plain sum."""
    try:
        check_cipher()
    except MisuseError as missing:
        sys.exit(str(missing))
    for label, size in SIZES.items():
        plain = measure("plain", size)
        for mode in MODES:
            cost = measure(mode, size)
            time, sent = cost.ms / plain.ms - 1, cost.sent_bytes / plain.sent_bytes - 1
            print(
                f"{label}, {mode}: {cost.ms:.3f} ms ({time:+.2%}), {cost.sent_bytes:,} bytes sent ({sent:+.3%})",
                flush=True,
            )


if __name__ == "__main__":
    main()
