"""The shipped controller service in a simulated world: virtual time, a seeded order, and faults at the service's borders.

The service's own parts run unchanged, from the streams of `controller.service.rpc` to the table writes: scheduler, registry,
store, sessions, moves, event log. The world replaces what surrounds them. `simulation` is the event loop, the clock and the
threads; `switches` are embedded switches behind the shipped `SwitchTables`; `disk` makes statements of the real SQLite file
fail; `streams` and `clients` are workers and operators without gRPC. `story` is a list of timed events, which `play` lets
happen, and `invariants` is asked after every step.
"""

import argparse


def minutes(words: str) -> float:
    """Read a time limit of the commands of this package, in minutes: a number above 0."""
    try:
        limit = float(words)
    except ValueError:
        limit = 0.0
    if not limit > 0:  # NaN too, which no clock reaches.
        raise argparse.ArgumentTypeError(f"expected a number above 0, not {words!r}")
    return limit
