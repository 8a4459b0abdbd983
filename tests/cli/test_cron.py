"""`penstock cron`: schedules are listed, paused, resumed and forgotten."""

import asyncio

from penstock import Penstock
from tests.support.command_line import CommandLine


def declare(penstock: CommandLine) -> None:
    """As a worker does that starts."""

    async def look() -> None:
        async with Penstock.connect(penstock.url) as app:
            chores = app.jobs("chores")
            chores.cron("0 3 * * *", {}, name="clean", timezone="Europe/Berlin")
            plans = {"clean": chores._schedules["clean"].plan}
            await app.backend.speaking({}, chores._terms.trail).look_at_crons(plans)

    asyncio.run(look())


def test_schedules_are_listed_paused_resumed_and_forgotten(penstock: CommandLine) -> None:
    assert "there is no queue 'chores'" in penstock.refused("cron", "ls", "chores", code=3)
    declare(penstock)
    (seen,) = penstock("cron", "ls", "chores").rows
    assert (seen["name"], seen["expression"], seen["timezone"], seen["paused"]) == (
        "clean", "0 3 * * *", "Europe/Berlin", False,
    )  # fmt: skip
    assert seen["next"] is not None
    for then in ("is paused", "was paused already"):
        said = f"Schedule 'clean' of 'chores' {then}, until penstock cron resume chores clean\n"
        assert penstock("cron", "pause", "chores", "clean").out == said
    (seen,) = penstock("cron", "ls", "chores").rows
    assert (seen["paused"], seen["next"]) == (True, None)
    assert "\nclean  0 3 * * * " in penstock("cron", "ls", "chores", terminal=True).out
    for then in ("is paused no more", "was not paused"):
        assert penstock("cron", "resume", "chores", "clean").out == f"Schedule 'clean' of 'chores' {then}\n"
    assert not penstock("cron", "ls", "chores").rows[0]["paused"]
    tried = penstock("cron", "rm", "chores", "clean", code=5)
    assert tried.out.startswith("Would forget schedule 'clean' of queue 'chores', and that it ticked up to 20")
    assert len(penstock("cron", "ls", "chores").rows) == 1
    penstock("cron", "rm", "chores", "clean", "--yes")
    penstock("job", "enqueue", "chores", "1")
    assert penstock("cron", "ls", "chores").rows == []


def test_a_schedule_that_is_not_there_is_exit_code_3(penstock: CommandLine) -> None:
    declare(penstock)
    for verb in ("pause", "resume", "rm"):
        line = penstock.refused("cron", verb, "chores", "nothing", code=3)
        assert "has no schedule 'nothing': there are clean" in line
