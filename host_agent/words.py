"""Words of messages for people."""


def plural(count: int, noun: str) -> str:
    """Write a count with its noun: 1 worker, 2 workers."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")
