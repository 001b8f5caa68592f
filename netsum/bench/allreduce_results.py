"""Results of `netsum bench allreduce`: one row each, the links' bounds, and the table of all."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from host_agent.wire.lengths import frame_bytes
from netsum.allreduce.plan import size_text
from netsum.allreduce.report import ReportRow
from netsum.terminal import ProgressRows

TCP_FRAME_BYTES, TCP_PAYLOAD_BYTES = 14 + 1500, 1500 - 20 - 20 - 12
"""A full segment on a link with an MTU of 1500, with timestamps."""
GLOO = "Gloo (TCP)"


def netsum_bound(rate_bps: int, lanes: int, elements_per_lane: int = 1, union_share: float = 1.0) -> float:
    """Return the elements/s that a link carries, where a share of the array's chunks travels."""
    return rate_bps * lanes * elements_per_lane / (8 * frame_bytes(lanes)) / union_share


def gloo_bound(rate_bps: int, workers: int) -> float:
    """Return the float32 elements/s of a ring all-reduce: each link carries 2(n - 1)/n of the array each way."""
    wire_bytes = 4 * TCP_FRAME_BYTES / TCP_PAYLOAD_BYTES * 2 * (workers - 1) / workers
    return rate_bps / (8 * wire_bytes)


@dataclass(frozen=True)
class AllReduceResult:
    """Measurement of one contender with one size at one loss."""

    contender: str  # Such as "netsum, 256 lanes".
    switch: str  # ``embedded`` or ``bmv2``.
    rate: str  # Rate of the links, as tc writes it.
    loss_percent: str  # Loss of every link, each way.
    workers: int
    bound: float  # The links' bound, in elements/s.
    row: ReportRow
    # Processor time of the switch in the timed repeats; None if not measured.
    switch_seconds: float | None

    @property
    def array(self) -> str:
        """Kind of array: a dense array, one with zeros, or elements of few bits."""
        row = self.row
        if row.bits != "full":
            return f"{row.bits} bits"
        return "dense" if row.density == 1 else f"{row.density * 100:.4g} %, {row.overlap}"

    def us_per_packet(self, seconds: float | None) -> str:
        """Return processor time over the packets that hosts sent and received, in microseconds; empty if not known."""
        return "" if seconds is None or not self.row.packets else f"{seconds / self.row.packets * 1e6:.2f}"

    @property
    def share(self) -> float:
        """The median as a share of the links' bound."""
        return self.row.elements_per_s.median / self.bound


HEADINGS = (
    *("switch", "rate", "loss", ">size", "array", "contender", "?>union", ">M elements/s\nper worker"),
    *(">of its\nbound", ">x dense", ">x Gloo", "?>bounds'\nratio", "?>resent", "?>host\nµs/packet"),
    *(">ms, median\n(99th %)", "?>switch\nµs/packet", "?>MB\nup", "?>MB\ndown", "right,\nsame bits"),
)


def table(results: Sequence[AllReduceResult]) -> list[list[str]]:
    """Return the rows under `HEADINGS`."""
    gloo: dict[object, AllReduceResult] = {}
    dense: dict[object, AllReduceResult] = {}
    for one in results:
        where = (one.switch == "bmv2", one.rate, one.loss_percent, one.row.bytes)
        if one.contender == GLOO:
            gloo[where] = one
        dense.setdefault((one.contender, one.switch, *where), one)
    lines = []
    for one in results:
        row, rate = one.row, one.row.elements_per_s
        where = (one.switch == "bmv2", one.rate, one.loss_percent, row.bytes)
        peer, plain = gloo.get(where), dense[one.contender, one.switch, *where]
        rates = [each / 1e6 for each in (rate.median, rate.least, rate.most)]
        ratio = theory = ""
        if peer is not None and peer is not one:
            ratio = f"{rate.median / peer.row.elements_per_s.median:.2f}"
            theory = f"{one.bound / peer.bound:.2f}"
        a_rank = row.repeats * one.workers * 1e6
        lines.append(
            [
                *(
                    one.switch,
                    one.rate,
                    f"{one.loss_percent} %",
                    size_text(row.bytes),
                    one.array,
                    one.contender,
                ),
                "" if row.union_share is None else f"{row.union_share:.2%}",
                f"{rates[0]:.3f} ({rates[1]:.3f} … {rates[2]:.3f})",
                f"{one.share:.1%}",
                "" if plain is one else f"{rate.median / plain.row.elements_per_s.median:.2f}",
                *(ratio, theory, "" if row.retransmissions is None else f"{row.retransmissions:,}"),
                one.us_per_packet(row.processor_seconds),
                f"{row.seconds.median * 1e3:.2f} ({row.seconds.p99 * 1e3:.2f})",
                one.us_per_packet(one.switch_seconds),
                *(
                    "" if each is None else f"{each / a_rank:.2f}"
                    for each in (row.bytes_sent, row.bytes_received)
                ),
                "yes" if row.correct and row.same_bits else "NO",
            ]
        )
    return lines


def print_table(headings: Sequence[str], lines: Iterable[Sequence[str]], *, key: int) -> str:
    """Print a table as `Rows` does, and return it as Markdown."""
    rows = ProgressRows(*headings, key=key)
    plain = [heading.lstrip(">?").replace("\n", " ") for heading in headings]
    text = [plain, ["---"] * len(plain)]
    for line in lines:
        rows.add(*line)
        text.append(list(line))
    rows.print()
    return "".join("| " + " | ".join(each) + " |\n" for each in text)
