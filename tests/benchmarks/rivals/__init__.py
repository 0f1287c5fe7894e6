"""Our step methods beside what a user would take instead: the same posteriors, one core each."""
