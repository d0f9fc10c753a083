"""A small banking back office that keeps its accounts evaluated with flask-async-jobs."""
