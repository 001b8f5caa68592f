"""The work of `netsum explore`: runs explorations, shows their progress, writes their findings."""
