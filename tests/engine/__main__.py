"""Packets/s of the embedded switch and of C by hand: ``python -m tests.engine --lanes 256``."""

import sys

from host_agent.errors import NetsumError
from netsum_common.options import parse
from tests.engine.comparison import EngineOptions, run

try:
    run(parse(EngineOptions, None, "python -m tests.engine", EngineOptions.__doc__ or ""))
except NetsumError as fault:
    sys.exit(f"tests.engine: {fault}")
