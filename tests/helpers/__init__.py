"""What tests share: models with exact answers, comparisons, runs."""
