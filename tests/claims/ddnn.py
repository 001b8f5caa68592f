"""DDNN: accuracy at each exit, and what goes upward, as the threshold moves."""

import math
from typing import Any, Final

from tests.claims import ddnn_network as ddnn
from tests.claims.claim import Claim, ClaimResult, Echo
from tests.virtual.group import run_workers

_STEPS: Final = 400
_DEVICES: Final = 4


def _run(echo: Echo) -> ClaimResult:
    size = ddnn.FIRST_DEVICE + _DEVICES

    def node(rank: int, group: Any, world: Any) -> Any:
        lower = group.divided(list(range(ddnn.EDGE, size))) if rank != ddnn.CLOUD else None
        return ddnn.run(rank, size, group, lower, _STEPS)

    echo(f"{_STEPS} steps")
    passages = run_workers(size, node)[0][ddnn.CLOUD]
    rows = [
        (
            f"{each.threshold:.1f}",
            f"{each.accuracy:.1%}",
            "/".join(f"{share:.0%}" for share in each.leave),
            "/".join("-" if math.isnan(share) else f"{share:.0%}" for share in each.right),
            f"{each.to_edge:.0f}",
            f"{each.to_cloud:.0f}",
        )
        for each in passages
    ]
    cloud, local = passages[0], passages[-1]
    best = max(passages, key=lambda each: (each.accuracy, each.threshold))
    upward = [each.to_edge + each.to_cloud for each in passages]
    return ClaimResult(
        (
            ">threshold",
            ">accuracy",
            ">leave at device,\nedge, cloud",
            ">right of\nthese",
            ">bytes up\nto edge",
            ">to cloud",
        ),
        rows,
        [
            (
                f"all at the cloud {cloud.accuracy:.1%}, all at the devices' exit {local.accuracy:.1%}",
                cloud.accuracy > local.accuracy,
            ),
            (
                f"at threshold {best.threshold:.1f}, {best.accuracy:.1%} with {best.leave[0]:.0%} leaving at the devices' exit "
                f"and {best.to_edge + best.to_cloud:.0f} bytes a sample upward instead of {upward[0]:.0f}",
                best.accuracy >= cloud.accuracy and best.to_edge + best.to_cloud < upward[0],
            ),
            ("bytes upward fall as the threshold rises", upward == sorted(upward, reverse=True)),
        ],
        f"ddnn_network.py: {_DEVICES} devices that see a corner of a digit each, {_STEPS} steps; float32 features",
    )


DDNN: Final = Claim(
    "ddnn",
    "early exits keep the accuracy of the whole network, and send a part of the bytes upward",
    "Teerapittayanon et al. 2017, tables II and III",
    _run,
)
