"""Learning a stream of tasks, evaluating it, and using the result."""
