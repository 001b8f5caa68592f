"""The layout of the tests: no folder of tests hides an installed package; a second run takes up what a first one skipped."""

import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent


def test_no_folder_of_tests_is_on_the_import_path() -> None:
    # tests/host_agent/torch on the path would be imported as PyTorch, tests/controller as the controller.
    assert [folder for folder in sys.path if Path(folder).resolve().is_relative_to(TESTS)] == []


def test_every_folder_with_tests_is_part_of_the_package_tests() -> None:
    folders = {file.parent for file in TESTS.rglob("test_*.py")}
    assert sorted(folder for folder in folders if not (folder / "__init__.py").exists()) == []


@pytest.mark.timeout(600)
def test_a_second_run_takes_up_what_the_first_skipped(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text((TESTS / "conftest.py").read_text(encoding="utf-8"))
    (tmp_path / "test_whole_file.py").write_text(
        "import pytest\npytest.importorskip('scarce', reason='needs scarce')\ndef test_of_scarce(): pass\n"
    )
    (tmp_path / "test_one.py").write_text(
        "import pytest\n"
        "def test_plain(): pass\n"
        "@pytest.mark.parametrize('kind', ['plain', 'scarce'])\n"
        "def test_kind(kind):\n"
        "    if kind == 'scarce':\n"
        "        pytest.importorskip('scarce', reason='needs scarce')\n"
    )

    def run(*options: str) -> str:
        command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
        done = subprocess.run(
            [*command, *options], cwd=tmp_path, capture_output=True, text=True, timeout=550, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    first = run("--numprocesses", "1", "--record-skipped", "skipped")
    assert "2 passed, 2 skipped" in first
    (tmp_path / "scarce.py").write_text("")
    second = run("--only-recorded", "skipped")
    assert "2 passed, 2 deselected" in second
    assert "test_of_scarce PASSED" in second
    assert "test_kind[scarce] PASSED" in second


@pytest.mark.parametrize("folder", ["build", "explored", "runs", "dist"])
def test_git_ignores_what_commands_leave(folder: str) -> None:
    if not (TESTS.parent / ".git").exists():
        pytest.skip("this is no git checkout")
    ignored = subprocess.run(
        ["git", "check-ignore", "--quiet", f"{folder}/file"], cwd=TESTS.parent, check=False
    )
    assert ignored.returncode == 0
