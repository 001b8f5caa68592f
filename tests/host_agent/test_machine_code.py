"""Places of machine code: an installation and a home that cannot be written, and a cache that came with an image."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import host_agent

SMALL = """
import host_agent.compilation_news
from netsum_common.compiled import compiled

@compiled
def double(value):
    return 2 * value

if __name__ == "__main__":
    print(type(double._cache._impl.locator).__name__, double(21))
"""


def _run(source: Path, tmp_path: Path, **environment: str) -> tuple[str, str]:
    """Run a module whose home cannot be written; return its output and its errors."""
    done = subprocess.run(
        [sys.executable, str(source)],
        env={
            **os.environ,
            "HOME": "/dev/null",
            "XDG_CACHE_HOME": "/dev/null/cache",
            "TMPDIR": str(tmp_path),
            "PYTHONPATH": str(Path(host_agent.__file__).parents[1]),
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=800,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), done.stderr


def _source(folder: Path) -> Path:
    folder.mkdir()
    source = folder / "small.py"
    source.write_text(SMALL)
    return source


def test_a_temporary_folder_is_used_where_nothing_else_can_be_written(tmp_path: Path) -> None:
    source = _source(tmp_path / "installed")
    (source.parent / "__pycache__").write_text("not a folder, so that root cannot write it either")
    out, printed = _run(source, tmp_path)
    assert out == "Temporary 42"
    assert "netsum: compiling for this machine" in printed
    kept = tmp_path / f"netsum-cache-{os.geteuid()}"
    assert str(kept) in printed
    assert list(kept.rglob("*.nbi"))
    assert kept.stat().st_mode & 0o077 == 0
    assert _run(source, tmp_path) == ("Temporary 42", ""), "the second process loads it"


def test_a_temporary_folder_that_others_can_write_is_refused(tmp_path: Path) -> None:
    source = _source(tmp_path / "installed")
    (source.parent / "__pycache__").write_text("")
    shared = tmp_path / f"netsum-cache-{os.geteuid()}"
    shared.mkdir()
    shared.chmod(0o777)
    done = subprocess.run(
        [sys.executable, str(source)],
        env={**os.environ, "HOME": "/dev/null", "XDG_CACHE_HOME": "/dev/null/cache", "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=800,
    )
    assert done.returncode != 0
    assert "can be written by others: delete it" in done.stderr


def test_other_ranks_of_a_machine_say_nothing(tmp_path: Path) -> None:
    source = _source(tmp_path / "installed")
    assert _run(source, tmp_path, LOCAL_RANK="1") == ("BesideSource 42", "")
    shutil.rmtree(source.parent / "__pycache__")
    assert "compiling" in _run(source, tmp_path, LOCAL_RANK="0")[1]


READ_ONLY = """
import runpy, sys, tempfile

def refuse(*arguments, **options):
    raise PermissionError(13, "read-only")

tempfile.TemporaryFile = refuse  # what Numba tries in a folder
runpy.run_path(sys.argv[1], run_name="__main__")
"""


def _run_read_only(source: Path) -> tuple[str, str]:
    done = subprocess.run(
        [sys.executable, "-c", READ_ONLY, str(source)], capture_output=True, text=True, timeout=800
    )
    return done.stdout.strip() or done.stderr.splitlines()[-1], done.stderr


def test_a_cache_that_came_with_an_image_is_used_though_it_cannot_be_written(tmp_path: Path) -> None:
    source = _source(tmp_path / "installed")
    assert _run(source, tmp_path)[0] == "BesideSource 42"
    assert _run_read_only(source) == ("FilledBesideSource 42", "")


def test_a_stale_cache_that_came_with_an_image_is_passed_over(tmp_path: Path) -> None:
    source = _source(tmp_path / "installed")
    assert _run(source, tmp_path)[0] == "BesideSource 42"
    source.write_text(SMALL + "# changed\n")
    assert "FilledBesideSource" not in _run_read_only(source)[0]
