"""The layout of the tests: no folder of tests hides an installed package."""

import sys
from pathlib import Path

TESTS = Path(__file__).parent


def test_no_folder_of_tests_is_on_the_import_path() -> None:
    # tests/host_agent/torch on the path would be imported as PyTorch, tests/controller as the controller.
    assert [folder for folder in sys.path if Path(folder).resolve().is_relative_to(TESTS)] == []


def test_every_folder_with_tests_is_part_of_the_package_tests() -> None:
    folders = {file.parent for file in TESTS.rglob("test_*.py")}
    assert sorted(folder for folder in folders if not (folder / "__init__.py").exists()) == []
