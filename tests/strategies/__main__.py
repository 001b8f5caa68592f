"""Train the same tasks under every strategy: accuracy, bytes, and time on links of many kinds.

    python -m tests.strategies --quick                                              # four strategies on one task
    python -m tests.strategies --strategies synchronous,diloco,easgd --workers 8 --seeds 5
    python -m tests.strategies --rates 10mbit --rtts 1ms,50ms --step-time 100ms    # other links and a slower model
    python -m tests.strategies --strategies synchronous,backup,downpour --slowest 5

Needs PyTorch. All workers run in this process, in virtual time. Each worker's computing, sending and waiting is
recorded; the time on other links is computed afterwards, with the simulator's times for collectives. Prints a table, and which
strategy reaches the target first by rate, round trip and number of workers. Results are kept: after Ctrl-C the same command goes
on from there, and trainings with the same step time are not run again.
"""

from netsum.cli.exits import reported_errors
from netsum_common.options import parse
from tests.strategies.comparison import run
from tests.strategies.options import StrategiesOptions

if __name__ == "__main__":
    with reported_errors():
        run(parse(StrategiesOptions, None, "python -m tests.strategies", __doc__ or ""))
