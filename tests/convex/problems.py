"""Finite sums over workers: f(x) = 1/n Σ f_i(x), f_i(x) = 1/m Σ f_ij(x), strongly convex and smooth, in float64."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from host_agent.options import require


class Problem(ABC):
    """A regularized linear model whose rows are divided over workers.

    `features`: each worker's rows. `targets`: their targets. `regularization`: λ of λ/2 ‖x‖², part of every f_ij.
    """

    def __init__(self, features: Tensor, targets: Tensor, regularization: float) -> None:
        require(
            features.dim() == 3 and targets.shape == features.shape[:2],
            f"expected features (workers, rows, dimension) and targets (workers, rows), got {tuple(features.shape)} and "
            f"{tuple(targets.shape)}",
        )
        require(regularization > 0, f"regularization must be positive, got {regularization}")
        self.features = features.to(torch.float64)
        self.targets = targets.to(torch.float64)
        self.regularization = regularization

    @property
    def workers(self) -> int:
        """Number of workers, n."""
        return int(self.features.shape[0])

    @property
    def rows(self) -> int:
        """Rows of each worker, m."""
        return int(self.features.shape[1])

    @property
    def dimension(self) -> int:
        """Number of unknowns."""
        return int(self.features.shape[2])

    @abstractmethod
    def loss(self, point: Tensor) -> float:
        """Return f(x)."""

    @abstractmethod
    def row_gradients(self, worker: int, rows: Tensor, point: Tensor) -> Tensor:
        """Return ∇f_ij(x) for some rows of a worker, (len(rows), dimension)."""

    @property
    @abstractmethod
    def curvature(self) -> float:
        """Largest second derivative of a row's loss with respect to its inner product."""

    def gradient(self, worker: int, point: Tensor) -> Tensor:
        """Return ∇f_i(x)."""
        return self.row_gradients(worker, torch.arange(self.rows), point).mean(dim=0)

    def smoothness(self) -> float:
        """Return L, of which every f_i is L-smooth."""
        largest = max(float(torch.linalg.matrix_norm(each, 2)) ** 2 / self.rows for each in self.features)
        return self.curvature * largest + self.regularization

    def row_smoothness(self) -> float:
        """Return L of which every f_ij is L-smooth."""
        return self.curvature * float(self.features.square().sum(dim=2).max()) + self.regularization

    def convexity(self) -> float:
        """Return μ, of which f is μ-strongly convex."""
        return self.regularization

    def optimum(self) -> Tensor:
        """Return the minimizer, by Newton's method to machine precision."""
        point = torch.zeros(self.dimension, dtype=torch.float64)
        for _ in range(100):
            gradient = torch.stack([self.gradient(each, point) for each in range(self.workers)]).mean(dim=0)
            if float(gradient.norm()) < 1e-15 * max(1.0, float(point.norm())):
                break
            step = torch.linalg.solve(self._hessian(point), gradient)
            point = point - step
            if float(step.norm()) < 1e-15 * max(1.0, float(point.norm())):
                break
        return point

    @abstractmethod
    def _hessian(self, point: Tensor) -> Tensor: ...

    def _gram(self, weights: Tensor) -> Tensor:
        rows = self.features.reshape(-1, self.dimension)
        gram = rows.T @ (rows * weights.reshape(-1, 1)) / rows.shape[0]
        return gram + self.regularization * torch.eye(self.dimension, dtype=torch.float64)


class Ridge(Problem):
    """Least squares: f_ij(x) = ½ (aᵀx − b)² + λ/2 ‖x‖²."""

    def loss(self, point: Tensor) -> float:
        """Return f(x)."""
        residual = self.features @ point - self.targets
        return float(0.5 * residual.square().mean() + 0.5 * self.regularization * point.square().sum())

    def row_gradients(self, worker: int, rows: Tensor, point: Tensor) -> Tensor:
        """Return ∇f_ij(x)."""
        chosen = self.features[worker, rows]
        residual = chosen @ point - self.targets[worker, rows]
        return chosen * residual[:, None] + self.regularization * point

    def convexity(self) -> float:
        """Return μ of f: the least eigenvalue of its Hessian, which is the same everywhere."""
        return float(torch.linalg.eigvalsh(self._hessian(torch.zeros(self.dimension)))[0])

    @property
    def curvature(self) -> float:
        """Derivatives of ½ t²."""
        return 1.0

    def _hessian(self, point: Tensor) -> Tensor:
        return self._gram(torch.ones_like(self.targets))


class LogisticRegression(Problem):
    """Logistic loss: f_ij(x) = log(1 + exp(−b aᵀx)) + λ/2 ‖x‖² with b in {−1, 1}."""

    def loss(self, point: Tensor) -> float:
        """Return f(x)."""
        margins = self.targets * (self.features @ point)
        return float(
            torch.nn.functional.softplus(-margins).mean() + 0.5 * self.regularization * point.square().sum()
        )

    def row_gradients(self, worker: int, rows: Tensor, point: Tensor) -> Tensor:
        """Return ∇f_ij(x)."""
        chosen, signs = self.features[worker, rows], self.targets[worker, rows]
        weights = -signs * torch.sigmoid(-signs * (chosen @ point))
        return chosen * weights[:, None] + self.regularization * point

    @property
    def curvature(self) -> float:
        """Derivatives of log(1 + exp(−t))."""
        return 0.25

    def _hessian(self, point: Tensor) -> Tensor:
        probability = torch.sigmoid(self.features @ point)
        return self._gram(probability * (1 - probability))


def heterogeneous(features: Tensor, targets: Tensor, workers: int) -> tuple[Tensor, Tensor]:
    """Divide rows over workers sorted by target, so that the workers' optima differ as much as the data allows.

    Columns are standardized. Rows that do not divide evenly are dropped.
    """
    features, targets = features.to(torch.float64), targets.to(torch.float64)
    spread = features.std(dim=0)
    features = (features - features.mean(dim=0)) / torch.where(spread > 0, spread, 1.0)
    rows = features.shape[0] // workers
    require(rows >= 1, f"{features.shape[0]} rows cannot be divided over {workers} workers")
    order = targets.argsort(stable=True)[: rows * workers]
    return features[order].view(workers, rows, -1), targets[order].view(workers, rows)
