"""Step sizes and rates from the theorems. L: smoothness, μ: strong convexity, n: workers, ω, δ: of the compressor."""

import math


def gradient_descent_step(smoothness: float) -> float:
    """Return 1 / L."""
    return 1.0 / smoothness


def compressed_descent_step(smoothness: float, omega: float, workers: int) -> float:
    """Return 1 / (L (1 + ω/n)): compressed gradients without memory.

    With E‖g‖² ≤ 2 L (1 + ω/n)(f − f*), which holds if every ∇f_i vanishes at the optimum; otherwise the method stalls in a
    neighbourhood proportional to the step (Gorbunov, Hanzely, Richtárik, AISTATS 2020, theorem 4.1). Independent block
    gradient descent is this with ω = 1/τ − 1 (Mishchenko, Hanzely, Richtárik, UAI 2020).
    """
    return 1.0 / (smoothness * (1.0 + omega / workers))


def diana_alpha(omega: float) -> float:
    """Return 1 / (1 + ω), the largest step of the shifts (Horváth et al., arXiv:1904.05115, theorem 1)."""
    return 1.0 / (1.0 + omega)


def diana_step(smoothness: float, omega: float, workers: int) -> float:
    """Return 1 / (L (1 + 6 ω/n)) (Gorbunov, Hanzely, Richtárik, AISTATS 2020, corollary for DIANA with M = 4 ω/(n α)).

    ISEGA is DIANA with independent random coordinates, ω = 1/τ − 1 and α = τ.
    """
    return 1.0 / (smoothness * (1.0 + 6.0 * omega / workers))


def diana_rate(step: float, convexity: float, omega: float) -> float:
    """Return the factor by which the Lyapunov function falls in each step: max(1 − γ μ, 1 − α/2)."""
    return max(1.0 - step * convexity, 1.0 - diana_alpha(omega) / 2.0)


def steps_to(factor: float, accuracy: float) -> int:
    """Return how many steps a rate needs to reduce an error to a share of itself."""
    return math.ceil(math.log(accuracy) / math.log(factor))
