"""Rankings of model runs by pairwise answers of judges and of people, from records alone. Pure."""
