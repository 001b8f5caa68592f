"""Historical faults of the controller, put back into copies of it: ``python -m tests.controller.world.faults [NAME ...]``.

Each is a replacement of source lines. A name ends with the commit that repaired the fault.
"""

import argparse
import os
import resource
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import controller
from tests.controller.world import minutes

SOURCE = Path(controller.__file__).parent
ROOT = SOURCE.parent


@dataclass(frozen=True)
class Fault:
    """A fault: `changes` are a file of the controller, its lines, and the lines in their place."""

    name: str
    changes: tuple[tuple[str, str, str], ...]

    def put_back(self, copy: Path) -> None:
        """Put the fault into a copy of the controller's package."""
        for file, before, after in self.changes:
            path = copy / file
            text = path.read_text(encoding="utf-8")
            if text.count(before) != 1:
                raise ValueError(f"{self.name}: {file} has {text.count(before)} times, not once: {before}")
            path.write_text(text.replace(before, after), encoding="utf-8")


def _fault(name: str, file: str, before: str, after: str) -> Fault:
    return Fault(name, ((file if file == "ledger.py" else f"service/{file}", before, after),))


FAULTS = (
    Fault(
        "two-resizings-at-once-d55b82d4",
        (
            (
                "service/scheduler.py",
                "        if job.state is not JobState.CLEARING:\n            return\n        try:",
                "        try:",
            ),
            (
                "service/scheduler.py",
                "            if job.record.epoch == epoch:\n                self.changes",
                "            if True:\n                self.changes",
            ),
        ),
    ),
    _fault(
        "a-failed-write-changes-memory-d55b82d4",
        "changes.py",
        "                vars(changed).update(values)\n",
        "                pass\n",
    ),
    _fault(
        "a-failed-write-keeps-its-slots-d55b82d4",
        "changes.py",
        "        yield from map(_copied, (ledger, ledger.allocator))\n",
        "        yield from ()\n",
    ),
    _fault(
        "messages-leave-before-the-disk-d55b82d4",
        "changes.py",
        "        if self._depth:\n            self._then",
        "        if False:\n            self._then",
    ),
    _fault(
        "a-deadline-is-lost-with-a-failed-write-d55b82d4",
        "scheduler.py",
        "self.changes.after(job.timer.start, seconds, self.changes.certainly, end, job)",
        "self.changes.after(job.timer.start, seconds, end, job)",
    ),
    _fault(
        "a-restart-deletes-a-later-epoch-d55b82d4",
        "installation.py",
        "                if job.parts.get(switch) is part:",
        "                if True:",
    ),
    _fault(
        "a-restart-gives-up-at-a-silent-switch-f19ba233",
        "installation.py",
        "            except ControllerError:\n                pass  #",
        "            except ControllerError:\n                return  #",
    ),
    _fault(
        "a-refused-tree-keeps-slots-7c92c04a",
        "ledger.py",
        "            self.discard(request.name, held)\n            where",
        "            where",
    ),
    _fault(
        "a-job-on-a-tree-is-restored-with-its-slots-164cb2d7",
        "recovery.py",
        "            record.release()\n",
        "            pass\n",
    ),
    _fault(
        "a-port-is-taken-twice-187c7898",
        "workers.py",
        '        if job.record.running:\n            raise RefusalError(Kind.WRONG, "a worker sends',
        '        if False:\n            raise RefusalError(Kind.WRONG, "a worker sends',
    ),
    _fault(
        "leaves-before-the-root-f19ba233",
        "installation.py",
        "        for switch, part in job.parts.items():\n            if job.installed",
        "        for switch, part in reversed(job.parts.items()):\n            if job.installed",
    ),
    _fault(
        "a-mark-without-its-jobs-d55b82d4",
        "sessions.py",
        "                changes.write(self._registry.store.mark_switch, name, new_mark)\n",
        "                self._registry.store.mark_switch(name, new_mark)\n",
    ),
    _fault(
        "jobs-without-switches-are-placed-for-ever-1b6746dc",
        "trees.py",
        "(anywhere if usable is None else usable)",
        "usable or anywhere",
    ),
)


@dataclass(frozen=True)
class Found:
    """Result of a search for a fault: the world's message, and the processor time in seconds."""

    fault: str
    cpu_s: float
    said: str


def look_for(fault: Fault, seeds: str = "", minutes: float = 1.0) -> Found:
    """Run stories around a controller with a fault; without `seeds`, from a new seed on."""
    first = secrets.randbits(32)
    with tempfile.TemporaryDirectory(prefix="netsum-fault-") as folder:
        shutil.copytree(SOURCE, Path(folder, "controller"), ignore=shutil.ignore_patterns("__pycache__"))
        fault.put_back(Path(folder, "controller"))
        path = os.pathsep.join([folder, str(ROOT), str(ROOT / "p4")])
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            [
                *(sys.executable, "-P", "-m", "tests.controller.world", "--no-shrink", "--processor-time"),
                *("--seeds", seeds or f"{first}..{first + 100_000}", "--minutes", str(minutes)),
            ],
            env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "0"},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=60 * minutes * 40,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    lines = [line for line in done.stdout.splitlines() if line.startswith("seed ")]
    if done.returncode not in (0, 1) or (done.returncode == 1) != bool(lines):
        raise RuntimeError(f"{fault.name}: the world ended with {done.returncode}: {done.stderr[-2000:]}")
    stories = done.stdout.splitlines()[-1].partition(",")[0]
    return Found(
        lines[0] if lines else "",
        after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        stories,
    )


def main(arguments: Sequence[str]) -> int:
    """Look for faults; return how many were not found."""
    parser = argparse.ArgumentParser(prog="python -m tests.controller.world.faults", description=__doc__)
    parser.add_argument("names", nargs="*", help="which faults; default: all")
    parser.add_argument("--minutes", type=minutes, default=1.0, help="minutes of processor time for each")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if not any(name in fault.name for fault in FAULTS)]
    if unknown:
        parser.error(
            f"no fault has {unknown[0]!r} in its name; there are: {', '.join(each.name for each in FAULTS)}"
        )
    missed = 0
    for fault in FAULTS:
        if options.names and not any(name in fault.name for name in options.names):
            continue
        found = look_for(fault, minutes=options.minutes)
        missed += not found.fault
        verdict = (
            f"found in {found.said}: {found.fault[:150]}" if found.fault else f"not found in {found.said}"
        )
        print(f"{fault.name}: {found.cpu_s:.1f} s of CPU, {verdict}", flush=True)
    return missed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
