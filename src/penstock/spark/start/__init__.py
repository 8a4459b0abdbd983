"""A Spark that runs: Java, the session, and what is wrong if it does not."""
