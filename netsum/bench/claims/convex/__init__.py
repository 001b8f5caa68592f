"""The papers' claims on compressed differences, checked through the slots of a simulated switch that loses packets."""

from netsum.bench.claims.convex.cases import ACCURACY, STALL, Case, CaseResult, cases_of, run_case

__all__ = ["ACCURACY", "STALL", "Case", "CaseResult", "cases_of", "run_case"]
