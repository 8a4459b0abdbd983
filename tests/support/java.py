"""How the JVMs of tests are started: for a short life, beside others."""

QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""On two cores none lives long enough to get back what better code and more threads for garbage cost."""

SUBMIT_VARIABLE = "PYSPARK_SUBMIT_ARGS"
SUBMIT_ARGUMENTS = f"--conf 'spark.driver.defaultJavaOptions={QUICK}' pyspark-shell"
"""Spark puts these options before those that a session asks for, and takes none of them away."""
