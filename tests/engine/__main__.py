"""Packets/s of the embedded switch and of C by hand: ``python -m tests.engine --lanes 256``."""

from netsum.cli.exits import reported_errors
from netsum_common.options import parse
from tests.engine.comparison import EngineOptions, run

if __name__ == "__main__":
    with reported_errors():
        run(parse(EngineOptions, None, "python -m tests.engine", EngineOptions.__doc__ or ""))
