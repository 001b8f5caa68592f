"""The base classes of netsum's errors, and a sentence of all readers of files."""

from collections.abc import Iterable


class NetsumError(Exception):
    """Base class of all errors of netsum."""


class MisuseError(NetsumError):
    """The caller requested something impossible."""


def unknown_keys(held: Iterable[str], known: Iterable[str]) -> str:
    """Write which keys of a table or an object are unknown, and which there are; empty if all are known."""
    known = list(known)
    unknown = sorted(set(held).difference(known))
    keys = f"unknown key{'s' * (len(unknown) > 1)} {', '.join(unknown)}"
    return f"{keys}; expected {'one of ' * (len(known) > 1)}{', '.join(known) or 'none'}" if unknown else ""
