"""An experiment from Python: how goodput depends on the number of workers. Needs netsum's extra `experiments`."""

from pathlib import Path

from netsum.simulation import run_experiment

rows = run_experiment(
    "quick",
    Path("runs") / "sim" / "from-python",
    settings={"job.workers": [2, 4, 8], "job.contender": ["netsum", "ring"], "topology.rate": "25gbit"},
)
for row in rows:
    print(
        f"{row['contender']:7} {row['workers']:2} workers, iteration {row['iteration']}: "
        f"{row['goodput_bps'] / 1e9:5.2f} Gbit/s"
    )
