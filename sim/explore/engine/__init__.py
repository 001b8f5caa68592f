"""The compiled part of the explorer: states, steps, searches. Functions take the record `world.WORLD`."""
