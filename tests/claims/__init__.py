"""Papers' claims on strategies, each tried on a task of minutes: `python -m tests.claims`."""
