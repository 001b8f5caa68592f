"""Options of several commands, each declared once; they are checked before a controller or a testbed is looked up."""

from typing import Any

from netsum_common.options import option


def json_option(help: str = "One JSON document, for scripts.") -> Any:
    """Declare `--json`."""
    return option(help, False, "--json")


def slots_option() -> Any:
    """Declare how many slots a job is to get; a text that `netsum.option_values.parse_slots` reads."""
    return option(
        "Chunks in flight: a power of two; or a share of the switch's slots, such as 25%; or a link to be filled, its "
        "rate and round-trip time, such as 10gbit*50us. Default: the controller's (64).",
        metavar="SLOTS",
        read=_checked_slots,
    )


def _checked_slots(text: str) -> str:
    from netsum.option_values import parse_slots

    parse_slots(text)
    return text


def join_token_option() -> Any:
    """Declare the secret of a job."""
    return option("Secret that workers must have to join; empty: none.", "", env="NETSUM_JOIN_TOKEN")


def lanes_option(
    default: int | None = None, help: str = "int32 values a packet carries; default: both."
) -> Any:
    """Declare how many values a packet carries."""
    return option(help, default)


def runs_option(default: int) -> Any:
    """Declare how often something is measured."""
    return option("Runs of each measurement, in turn.", default, within=(1, None))


def rate_option(default: str = "100mbit") -> Any:
    """Declare the rate of the links of a testbed."""
    return option("Rate of every link.", default, metavar="RATE")
