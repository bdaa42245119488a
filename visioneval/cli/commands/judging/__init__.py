"""Commands about judges and people: agreement, label, questions, pairwise and rank."""
