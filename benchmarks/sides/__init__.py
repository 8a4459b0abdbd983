"""What runs in the measured processes: one file for each contestant, all with the same functions.

`consume(job, ticks)` handles messages until it is ended; `publish(job)` sends `job.messages`; `sender(job)` is an async
context manager that gives a function which sends one body. A file imports its own library and nothing of another's.
"""
