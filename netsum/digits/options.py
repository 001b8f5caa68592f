"""Options of `netsum run digits`."""

from dataclasses import dataclass
from typing import Literal

from netsum.options import json_option, lanes_option
from netsum_common.lane_counts import Lanes
from netsum_common.options import option


@dataclass(frozen=True)
class DigitsOptions:
    """A demonstration as the command line says it; None takes what suits the switch."""

    workers: int = option("Worker processes.", 4, within=(1, 32))
    lanes: Lanes | None = lanes_option(None, "int32 values a packet carries. Default: 256; 64 with BMv2.")
    steps: int | None = option("Gradient steps. Default: 200; 60 with BMv2.", within=(1, 100_000))
    drop_percent: float = option(
        "Packets dropped each way in the second run; 0: no second run.", 1.0, within=(0.0, 50.0)
    )
    switch: Literal["embedded", "bmv2"] = option(
        "Switch that runs the P4 program; BMv2 needs Mininet.", "embedded"
    )
    mininet: bool = option(
        "Hosts and switch in network namespaces, not on loopback (root).", False, "--mininet"
    )
    as_json: bool = json_option()
