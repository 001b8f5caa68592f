"""A proof of the slot protocol for any number of workers, slots, chunks, losses and restarts: docs/proof.md."""
