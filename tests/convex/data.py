"""The problems: two on data that comes with scikit-learn, and two of a hundred workers on random data."""

from functools import cache
from typing import Final

import torch

from tests.convex.problems import LogisticRegression, Problem, Ridge, heterogeneous

WORKERS: Final = 4
MANY: Final = 100
_ROWS, _DIMENSION = 12, 100  # Sizes for each of a hundred workers.


@cache
def problem(name: str) -> Problem:
    """Return a problem.

    `name`: the first two divide diabetes and breast cancer data over four workers by target, so that the workers' gradients
    at the optimum are far from zero. "ridge of 100" has a hundred workers with random data of their own; with "shared
    optimum" the gradients of all of them vanish at the optimum.
    """
    if name == "ridge":
        from sklearn.datasets import load_diabetes

        data = load_diabetes()
        divided = heterogeneous(torch.tensor(data.data), torch.tensor(data.target / 100), WORKERS)
        return Ridge(*divided, 0.2)
    if name == "logistic":
        from sklearn.datasets import load_breast_cancer

        data = load_breast_cancer()
        divided = heterogeneous(torch.tensor(data.data), torch.tensor(data.target * 2.0 - 1.0), WORKERS)
        return LogisticRegression(*divided, 0.1)
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(MANY, _ROWS, _DIMENSION, generator=generator, dtype=torch.float64)
    if name == "shared optimum":
        return Ridge(features, features @ torch.ones(_DIMENSION, dtype=torch.float64), 1e-9)
    return Ridge(features, torch.randn(MANY, _ROWS, generator=generator, dtype=torch.float64), 2.0)
