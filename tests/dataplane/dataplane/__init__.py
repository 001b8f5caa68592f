"""Common parts of the tests of the P4 program: targets, jobs, frames."""
