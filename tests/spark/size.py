"""How large the Spark tests are: small with every `make test`, full with `make spark-full`."""

import os

FULL = "SPARK_FULL" in os.environ
SEED = int(os.environ.get("SPARK_SEED", "1"))
