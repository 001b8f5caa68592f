"""The name of an incarnation of a job: alike at all ranks, and other than that of the incarnation before a restart."""

import os

_default_groups, _resized = 0, False


def incarnation_of(default_group: bool, resized: bool) -> str:
    """Name this incarnation of the job, alike at all ranks: what torchrun restarts may find the store of the incarnation before.

    Default groups are counted, as all ranks are in each of them; names of other groups differ while a default group lasts. After
    a resizing nothing is counted: newcomers have seen fewer groups, and the store is the epoch's own.
    """
    global _default_groups, _resized
    _default_groups += default_group
    if default_group:
        _resized = resized
    return "resized" if _resized else f"{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}.{_default_groups}"
