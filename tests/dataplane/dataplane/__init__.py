"""What the tests of the P4 program share: targets, jobs, frames."""
