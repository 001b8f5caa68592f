"""Checks this machine for the tools that netsum uses, and names the remedy for each missing one."""

from netsum.doctor.examination import examine
from netsum.doctor.finding import Finding

__all__ = ["Finding", "examine"]
