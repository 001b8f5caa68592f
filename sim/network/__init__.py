"""A packet network in virtual time: compiled events, real switches' programs, real workers' cores."""
