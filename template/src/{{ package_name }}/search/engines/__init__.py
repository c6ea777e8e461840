"""What conducts a search, a file each, whose `run(search, say)` has it done; `say` reports a trial that ended."""

STARTUP_TRIALS = 10
"""How many are drawn at random before a sampler learns."""
