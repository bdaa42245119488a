"""What a comparison adds up and remembers of its pairs, which it reads once and one at a time. Pure."""
