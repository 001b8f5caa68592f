"""What a check found."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """What one check found.

    Attributes
    ----------
    needed_for
        What does not work without it; empty if all is well.
    remedy
        What to do; empty if all is well.
    required
        Whether nothing works without it: then `netsum doctor` fails.
    tried
        Whether the check was done; `remedy` then says how to have it done.
    """

    subject: str
    found: str
    needed_for: str = ""
    remedy: str = ""
    required: bool = False
    tried: bool = True

    @property
    def well(self) -> bool:
        """Whether nothing need be done."""
        return not self.remedy

    def to_json(self) -> dict[str, object]:
        """Return it as `netsum doctor --json` shows it."""
        return {
            "subject": self.subject,
            "well": self.well,
            "tried": self.tried,
            "required": self.required,
            "found": self.found,
            "needed_for": self.needed_for,
            "remedy": self.remedy,
        }
