"""What options of several benches have in common."""

import argparse

__all__ = ["counts"]


def counts(text: str) -> list[int]:
    """Read whole numbers with commas between them, as an argparse type.

    Raises
    ------
    argparse.ArgumentTypeError
        They are none.
    """
    try:
        return [int(count) for count in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected whole numbers such as 1,2,4, not {text!r}") from None
