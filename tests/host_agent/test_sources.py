"""Rules about the sources themselves."""

import ast
from pathlib import Path

import pytest

import host_agent

ROOT = Path(host_agent.__file__).parent
FORBIDDEN = {
    "time",
    "datetime",
    "socket",
    "select",
    "selectors",
    "threading",
    "asyncio",
    "concurrent",
    "random",
}
FORBIDDEN |= {"secrets", "os", "torch", "subprocess", "multiprocessing"}
NEED_TORCH = ("host_agent.torch", "host_agent.compression", "host_agent.strategies")
PURE = sorted(path for folder in ("protocol", "codecs") for path in (ROOT / folder).glob("*.py"))


@pytest.mark.parametrize("path", PURE, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_the_core_imports_no_clock_socket_thread_or_random_source(path: Path) -> None:
    imported = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            imported.add(node.module)
            imported |= {f"{node.module}.{alias.name}" for alias in node.names}
    assert not {name.split(".")[0] for name in imported} & FORBIDDEN
    assert not [name for name in imported if name.startswith(("numpy.random", "host_agent.transport"))]
