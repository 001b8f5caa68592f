"""Stories of many seeds in the simulated world: ``python -m tests.controller.world --seeds 0..999 --minutes 1``."""

import argparse
import logging
import os
import re
import secrets
import sys
import time
from collections import Counter
from collections.abc import Iterable
from itertools import count

from tests.controller.world import minutes
from tests.controller.world.play import Outcome, play, shrunk
from tests.controller.world.story import story_of

SAYS_EVERY_S = 10.0
SHOWN = 15
"""How many of the last happenings of a failing story are printed."""


def main(arguments: list[str]) -> int:
    """Run stories until the time or the seeds are over, or a story fails; return the exit status."""
    if os.environ.get("PYTHONHASHSEED") != "0":  # The order of a set of names is part of a story.
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.controller.world", *arguments])
    options = _parsed(arguments)
    logging.disable(logging.CRITICAL)
    clock = time.process_time if options.processor_time else time.monotonic
    began, said = clock(), time.monotonic()
    total: Counter[str] = Counter()
    traces: set[str] = set()
    failed = 0
    for seed in options.seeds:
        if clock() - began > 60 * options.minutes:
            break
        outcome = play(story_of(seed))
        total.update(outcome.happened)
        total["stories"] += 1
        total["events"] += outcome.steps
        traces.add(outcome.trace)
        if time.monotonic() - said > SAYS_EVERY_S:
            said = time.monotonic()
            print(_counted(total, traces), flush=True)
        if outcome.fault:
            failed += 1
            print(_told(seed, outcome, options.shrink), flush=True)
            if not options.go_on:
                break
    print(_counted(total, traces))
    if options.verbose:
        print(", ".join(f"{count} {kind}" for kind, count in sorted(total.items())))
    return 1 if failed else 0


def _parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.controller.world", description=__doc__)
    parser.add_argument(
        "--seeds", type=_seeds, default=None, help="one seed, or FIRST..LAST; default: new ones"
    )
    parser.add_argument("--minutes", type=minutes, default=float("inf"), help="stop after so many minutes")
    parser.add_argument("--processor-time", action="store_true", help="count minutes of this process alone")
    parser.add_argument("--go-on", action="store_true", help="do not stop at the first story that fails")
    parser.add_argument(
        "--no-shrink", dest="shrink", action="store_false", help="print failing stories whole"
    )
    parser.add_argument("--verbose", action="store_true", help="count what has happened, by kind")
    options = parser.parse_args(arguments)
    if options.seeds is None:
        if options.minutes == float("inf"):
            parser.error("give --seeds, --minutes or both")
        options.seeds = count(secrets.randbits(32))
    return options


def _seeds(words: str) -> Iterable[int]:
    found = re.fullmatch(r"(\d+)(?:\.\.(\d+))?", words)
    if found is None or (found[2] and int(found[2]) < int(found[1])):
        raise argparse.ArgumentTypeError(f"expected a seed or FIRST..LAST, not {words!r}")
    return range(int(found[1]), int(found[2] or found[1]) + 1)


def _counted(total: Counter[str], traces: set[str]) -> str:
    failures = (
        sum(count for kind, count in total.items() if kind.startswith("store: ")) - total["store: commits"]
    )
    return (
        f"{total['stories']} stories, {total['events']:,} events, {len(traces)} distinct orders, "
        f"{total['store: commits']:,} commits, {failures:,} failures of the store"
    )


def _told(seed: int, outcome: Outcome, shrinks: bool) -> str:
    before = len(outcome.story.steps)
    if shrinks:
        outcome = shrunk(outcome)
    return "\n".join(
        [
            f"seed {seed}: {outcome.fault}",
            f"at {outcome.at_s:.3f} s of this story ({len(outcome.story.steps)} of its {before} events):",
            str(outcome.story),
            "the last happenings:",
            *(line[:240] for line in outcome.last[-SHOWN:]),
            f"again: python -m tests.controller.world --seeds {seed}",
        ]
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
