"""A catalogue import: many listings are reviewed in the background, as one batch, with flask-async-jobs."""
