"""The job queue: three lanes by priority, one group of workers, one job done by one of them."""
