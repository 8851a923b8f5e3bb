"""Everything that trains: it knows torch and skorch, and no estimator."""
