"""Two runs compared: pairing, differences, and what fails a comparison."""
