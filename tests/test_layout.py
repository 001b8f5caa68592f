"""The layout of the tests: folders hide no installed package; a second run takes up the tests that a first one skipped."""

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import conftest, words

TESTS = Path(__file__).parent
ROOT = TESTS.parent


def test_no_folder_of_tests_is_on_the_import_path() -> None:
    # tests/host_agent/torch on the path would be imported as PyTorch, tests/controller as the controller.
    assert [folder for folder in sys.path if Path(folder).resolve().is_relative_to(TESTS)] == []


def test_every_folder_with_tests_is_part_of_the_package_tests() -> None:
    folders = {file.parent for file in TESTS.rglob("test_*.py")}
    assert sorted(folder for folder in folders if not (folder / "__init__.py").exists()) == []


def test_pytest_runs_every_file_with_tests() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        paths = tomllib.load(file)["tool"]["pytest"]["ini_options"]["testpaths"]
    run = {found for path in map(ROOT.joinpath, paths) for found in (path, *path.rglob("test_*.py"))}
    assert [file for file in TESTS.rglob("test_*.py") if file not in run] == []


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


@pytest.mark.parametrize(
    ("test", "status", "written"),
    [
        ("def test_it(): assert False", 1, "test_file.py::test_it\n"),
        ("import absent", 2, None),
        ("def test_it(): raise KeyboardInterrupt", 2, None),
        ("def test_it(): pass", 0, None),
    ],
)
def test_failed_tests_are_written_down_if_all_ran(
    tmp_path: Path, test: str, status: int, written: str | None
) -> None:
    """The tests that `.ci/run` repeats alone."""
    (tmp_path / "conftest.py").write_text((TESTS / "conftest.py").read_text(encoding="utf-8"))
    (tmp_path / "test_file.py").write_text(f"{test}\n")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
    done = subprocess.run(
        [*command, "--record-failed", "failed"], cwd=tmp_path, capture_output=True, timeout=100, check=False
    )
    assert done.returncode == status
    failed = tmp_path / "failed"
    assert (failed.read_text(encoding="utf-8") if failed.exists() else None) == written


def test_files_that_wait_are_mixed_with_those_that_compute_behind_the_long_ones() -> None:
    files = [
        Path(f"tests/{name}.py")
        for name in ("sim/a", "sim/b", "sim/c", "sim/d", "sim/test_xdp", "sim/test_faults")
    ]
    files += [Path(f"tests/integration/{name}.py") for name in ("a", "b")]
    order = [str(file.relative_to("tests").with_suffix("")) for file in conftest.mixed(files)]
    assert order[:2] == ["sim/test_faults", "sim/test_xdp"]
    assert order[2:] == ["sim/a", "integration/a", "sim/b", "sim/c", "integration/b", "sim/d"]


def test_every_folder_with_tests_has_seconds_which_together_are_twelve_minutes_of_three_processes() -> None:
    seconds = dict(conftest.BUDGET.findall((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")))
    folders = {"/".join(file.relative_to(ROOT).parts[:2]) for file in TESTS.glob("*/**/test_*.py")}
    assert seconds.keys() == folders
    assert sum(map(int, seconds.values())) <= 3 * 12 * 60


def test_a_folder_that_takes_longer_than_its_seconds_is_named() -> None:
    reports = [
        pytest.TestReport(
            f"tests/sim/test_{n}.py::test", ("", 0, ""), {}, "passed", None, "call", duration=4.0
        )
        for n in range(3)
    ]
    (line,) = conftest.over_budget(reports, "|`tests/sim`|11|\n|`tests/netsum`|1|\n")
    assert line == "tests/sim: 12 s of tests, 11 in CONTRIBUTING.md: see --durations"
    assert conftest.over_budget(reports, "|`tests/sim`|12|\n") == []


@pytest.mark.parametrize("folder", ["build", "explored", "runs", "dist"])
def test_git_ignores_what_commands_leave(folder: str) -> None:
    if not (TESTS.parent / ".git").exists():
        pytest.skip("this is no git checkout")
    ignored = subprocess.run(
        ["git", "check-ignore", "--quiet", f"{folder}/file"], cwd=TESTS.parent, check=False
    )
    assert ignored.returncode == 0


def modules() -> dict[str, Path]:
    """Return the files of all modules of the product, by the modules' names."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        packages = tomllib.load(file)["tool"]["importlinter"]["root_packages"]
    files = [path.relative_to(ROOT) for package in packages for path in (ROOT / package).rglob("*.py")]
    return {".".join(path.with_suffix("").parts).removesuffix(".__init__"): ROOT / path for path in files}


def modules_named_in(path: Path, known: dict[str, Path]) -> Iterator[str]:
    """Return the modules that strings of a file name, as a command that starts one does."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "." in node.value:
            named = node.value.partition(":")[0]
            if named in known:
                yield named


def is_within(module: str, packages: list[str]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def test_no_string_names_a_module_that_the_import_rules_forbid() -> None:
    # A module that is started by its name depends on it as one that imports it: netsum_common.programs has the way up.
    known = modules()
    assert len(known) > 500
    with (ROOT / "pyproject.toml").open("rb") as file:
        contracts = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    rules = [
        (contract["source_modules"], contract["forbidden_modules"])
        for contract in contracts
        if contract["type"] == "forbidden"
    ]
    named = {name: set(modules_named_in(path, known)) for name, path in known.items()}
    assert any(named.values())
    assert [
        f"{name} names {other}"
        for name, others in named.items()
        for other in sorted(others)
        if any(is_within(name, sources) and is_within(other, forbidden) for sources, forbidden in rules)
    ] == []


def test_a_text_without_its_subject_is_found_where_it_begins() -> None:
    source = (
        '"""What it is."""\n\nX = 1  # Of nothing.\n# A reason\n# which goes on.\n'
        'def f():\n    """Return."""\n    # Its own.\n'
    )
    places = [line for line, text in words.python_texts(source) if words.SUBJECTLESS.match(text)]
    assert places == [1, 3, 8]
    program = "// Of a header\n// which goes on\nbit<8> x; // What it is\n// The reason\n"
    assert [line for line, text in words.p4_texts(program) if words.SUBJECTLESS.match(text)] == [1, 3]
