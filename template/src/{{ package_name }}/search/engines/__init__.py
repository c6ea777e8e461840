"""What conducts a search, a file each, whose `run(search, say)` has it done; `say` reports a trial that ended."""
