"""P4 programs of other protocols, which the explorer looks into; compiled ones beside their sources."""
