"""How large the fault tests are: small with every `make test`, full with `make fault`."""

import os

FULL_MESSAGES = 5000
MESSAGES = int(os.environ.get("FAULT_MESSAGES", "240"))
SEED = int(os.environ.get("FAULT_SEED", "1"))
FULL = MESSAGES >= FULL_MESSAGES

PRODUCERS = 4 if FULL else 1
WORKERS = 6 if FULL else 2

PATIENCE = 240.0 if FULL else 90.0
"""Seconds after which what has not happened is taken for a hang, which is a failure."""

POISON = max(2, MESSAGES // PRODUCERS // 40)
TIMEOUT = 900 if FULL else 300
"""Seconds for a whole row: on a busy machine it waits for many things, each of them for longer than usual."""

MIX = {"raise": POISON, "flaky": POISON}
"""What each producer mixes in: about one in twenty does not succeed at once."""
DUPLICATES = 0.1
