"""What tests of whole jobs share: a star in virtual time, a switch on loopback, random collectives and what they must return."""
