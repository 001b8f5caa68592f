"""Looks at this machine for what netsum uses, and says what to do about what is missing."""

from netsum.doctor.examination import examine
from netsum.doctor.finding import Finding

__all__ = ["Finding", "examine"]
