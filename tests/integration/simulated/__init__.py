"""Common parts of tests of whole jobs: a star in virtual time, a switch on loopback, random collectives and expected results."""
