"""`torch.distributed.monitored_barrier` for netsum's groups: torch's own takes groups of Gloo alone."""

from datetime import timedelta
from typing import Any

import torch.distributed as dist


def monitored_barrier(
    group: Any = None, timeout: timedelta | None = None, wait_all_ranks: bool = False
) -> None:
    """Wait for all ranks of a group, and name those that do not come.

    `group`: of backend "netsum" or "gloo"; None is the default group. `timeout`: how long rank 0 waits; None is the group's
    own. `wait_all_ranks`: whether to name all ranks that do not come, rather than the first. Raises RuntimeError if some
    ranks did not come. Rank 0's error names them.
    """
    if dist.get_backend(group) == "gloo":
        dist.monitored_barrier(group, timeout, wait_all_ranks)
    else:
        (group or dist.group.WORLD).monitored_barrier(timeout, wait_all_ranks)
