"""Many engines, one run: shards that several machines run, and ``merge``, which unites them."""
