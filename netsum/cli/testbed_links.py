"""Changes of a link as commands write them: `up`, `down`, `rate=10mbit`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from netsum.command_errors import CommandError, UsageError
from topologies.keeper import LINK_FIELDS
from topologies.links import change_link, find_link, set_link
from topologies.run_folder import RunningTestbed
from topologies.units import parse_latency_ns, parse_loss_ppm, parse_rate_bps

MAX_QUEUE_PKTS: Final = 1_000_000


def _rate(text: str) -> int | None:
    return None if text == "unlimited" else parse_rate_bps(text)


def _queue(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= MAX_QUEUE_PKTS):
        raise ValueError(f"a number of packets between 1 and {MAX_QUEUE_PKTS:,}")
    return int(text)


CHANGES: Final[Mapping[str, tuple[str, Callable[[str], int | None]]]] = {
    "rate": ("rate_bps", _rate),
    "loss": ("loss_ppm", parse_loss_ppm),
    "latency": ("latency_ns", parse_latency_ns),
    "queue": ("queue_pkts", _queue),
}
"""The properties of a link that can change, by keyword: the field of `testbed.json`, and the reader of its value."""
assert {field for field, _ in CHANGES.values()} == LINK_FIELDS


def read_changes(words: Mapping[str, str], prefix: str = "") -> dict[str, int | None]:
    """Read new values of a link, by the keys of `CHANGES`; UsageError says what was expected.

    `prefix`: the prefix of a key as the user wrote it, such as ``--``.
    """
    changes = {}
    for word, text in words.items():
        field, read = CHANGES[word]
        try:
            changes[field] = read(text)
        except ValueError as expected:
            raise UsageError(f"{prefix}{word}: expected {expected}, not {text!r}") from None
    return changes


def change(
    testbed: RunningTestbed, one: str, other: str, *, up: bool | None, changes: Mapping[str, int | None]
) -> str:
    """Change a link, and return a line that describes it.

    `up`: whether the cable is plugged in from now on; None: as it is.
    """
    number = find_link(testbed, one, other)
    if changes:
        change_link(testbed, number, changes)
    if up is not None:
        set_link(testbed, number, up)
    name = " to ".join(testbed.state["links"][number]["ends"])
    said = [] if up is None else ["up" if up else "down"]
    return f"link {name}: {', '.join([*said, *(_text(field, value) for field, value in changes.items())])}"


def change_from_words(testbed: RunningTestbed, one: str, other: str, words: Sequence[str]) -> str:
    """Change a link by words: `up`, `down`, or `KEY=VALUE`; return a line that describes it."""
    up, written = None, {}
    for word in words:
        key, equals, value = word.partition("=")
        if word in ("up", "down"):
            up = word == "up"
        elif equals and key in CHANGES:
            written[key] = value
        else:
            raise CommandError(
                f"expected up, down or {', '.join(f'{each}=…' for each in CHANGES)}, not {word!r}"
            )
    return change(testbed, one, other, up=up, changes=read_changes(written))


def _text(field: str, value: int | None) -> str:
    from topologies.units import rate_text

    if field == "rate_bps":
        return "rate unlimited" if value is None else f"rate {rate_text(value)}"
    assert value is not None
    if field == "loss_ppm":
        return f"loss {value / 10_000:g} %"
    return f"latency {value / 1e6:g} ms" if field == "latency_ns" else f"queue {value:,} packets"
