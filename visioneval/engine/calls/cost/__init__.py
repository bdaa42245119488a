"""What calls cost: prices, bounds, the budget, the meter, and the estimate before a run."""
