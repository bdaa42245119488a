"""The part of a suite that runs: by flags, and by shard."""
