"""The tree of commands. Each is listed by the line that is here, and explains itself by its whole docstring."""

from cyclopts import App

from penstock import __version__
from penstock.cli.help_pages import Flowing
from penstock.cli.usage import EXIT_CODES

app = App(
    name="penstock",
    help="Dependable messaging on Redis and Valkey Streams.\n\nExit codes:\n"
    + "\n".join(f"{code:>5}  {meaning}" for code, meaning in EXIT_CODES.items()),
    version=f"penstock {__version__}",
    help_format="plaintext",
    help_formatter=Flowing(),
)
# Named by strings, so that only the command that runs is loaded, with all that it imports. Its help is for lists.
app.command("penstock.cli.up:up", name="up", help="Run the embedded Valkey server until Ctrl-C.")
app.command(
    "penstock.cli.demo.command:demo",
    name="demo",
    help="A small shop on a server of its own: watch it work, fail and mend itself, and see that all adds up.",
)
app.command(
    "penstock.cli.run:run",
    name="run",
    help="Run the handlers of an app until SIGTERM or Ctrl-C, then drain; asked twice, end at once.",
)
app.command(
    "penstock.cli.serve:serve",
    name="serve",
    help="Serve topics over HTTP: followed as server-sent events, published to by POST.",
)
app.command("penstock.cli.publish:publish", name="publish", help="Publish a message, or one for each line of stdin.")
app.command("penstock.cli.tail:tail", name="tail", help="Show what is in topics, and what comes.")
app.command("penstock.cli.get:get", name="get", help="Show a message by its id.")
app.command("penstock.cli.ls:ls", name="ls", help="List topics, and how each stands.")
topic = App(name="topic", help="One topic.", help_format="plaintext")
topic.command("penstock.cli.topic:info", name="info", help="Say how a topic and its groups stand.")
topic.command("penstock.cli.topic:trim", name="trim", help="Drop old entries that everybody is done with.")
topic.command("penstock.cli.topic_copy:export", name="export", help="Write the entries of a topic to a file.")
topic.command("penstock.cli.topic_copy:import_", name="import", help="Append what export has written.")
topic.command("penstock.cli.topic_remove:rm", name="rm", help="Delete a topic with all that belongs to it.")
topic.command("penstock.cli.topic:adopt", name="adopt", help="Have streams that others made known as topics.")
app.command(topic)
group = App(name="group", help="Groups of a topic.", help_format="plaintext")
group.command("penstock.cli.group:ls", name="ls", help="List the groups of a topic.")
group.command("penstock.cli.group:info", name="info", help="Say how a group and its consumers stand.")
group.command("penstock.cli.group:pending", name="pending", help="List entries that consumers hold.")
group.command("penstock.cli.group_change:reset", name="reset", help="Have a group go on behind another place.")
group.command("penstock.cli.group_change:claim", name="claim", help="Free entries that nobody works on any more.")
group.command("penstock.cli.group_change:ack", name="ack", help="Mark entries as done that consumers hold.")
group.command("penstock.cli.group_retry:retry", name="retry", help="Have what waits for a retry tried again now.")
group.command("penstock.cli.group_pause:pause", name="pause", help="Have the workers of a group read nothing more.")
group.command("penstock.cli.group_pause:resume", name="resume", help="Have the workers of a group read again.")
group.command("penstock.cli.group_change:rm", name="rm", help="Remove a group.")
app.command(group)
cursor = App(name="cursor", help="Durable cursors of a topic.", help_format="plaintext")
cursor.command("penstock.cli.cursor:ls", name="ls", help="List the durable cursors of a topic.")
cursor.command("penstock.cli.cursor:reset", name="reset", help="Have a cursor go on behind another place.")
cursor.command("penstock.cli.cursor:rm", name="rm", help="Remove a cursor.")
app.command(cursor)
app.command(
    "penstock.cli.doctor:doctor",
    name="doctor",
    help="Say what is wrong with the server, its topics, and this machine, and what mends it.",
)
app.command(
    "penstock.cli.why:why",
    name="why",
    help="Say why a topic, group or message is stuck, and what to do.",
)
app.command(
    "penstock.cli.check:check",
    name="check",
    help="Verify that topics are whole, without changing them.",
)
spark = App(name="spark", help="Streams in and out of Spark.", help_format="plaintext")
spark.command(
    "penstock.cli.spark:doctor",
    name="doctor",
    help="Say what Spark needs, what of it is here, and how to get the rest.",
)
app.command(spark)
lake = App(name="lake", help="What was archived, without Spark.", help_format="plaintext")
lake.command("penstock.cli.lake:query", name="query", help="Ask the tables of a lake in SQL.")
lake.command("penstock.cli.lake:tables", name="tables", help="Say what is in a lake.")
lake.command("penstock.cli.lake:files", name="files", help="List the files of a table, for other readers.")
lake.command("penstock.cli.lake_schema:schema", name="schema", help="Say which columns a topic has as a table.")
lake.command("penstock.cli.lake_care:compact", name="compact", help="Merge small files, and keep each message once.")
lake.command("penstock.cli.lake_care:drop", name="drop", help="Take days out of a lake that are old enough.")
lake.command("penstock.cli.replay:replay", name="replay", help="Bring messages back from a lake to a topic or group.")
lake.command("penstock.cli.failures:failures", name="failures", help="Say what goes wrong: dead letters by their kind.")
app.command(lake)
pipeline = App(name="pipeline", help="From streams to a lake and back, by Spark.", help_format="plaintext")
pipeline.command("penstock.cli.pipeline:archive", name="archive", help="Copy what is new in topics to a lake.")
pipeline.command("penstock.cli.metrics:metrics", name="metrics", help="Measure topics by windows of time.")
pipeline.command(
    "penstock.cli.alerts:alerts", name="alerts", help="Tell of messages that did not follow others in time."
)
pipeline.command(
    "penstock.cli.flow:run",
    name="run",
    help="Run a flow of your own until SIGTERM or Ctrl-C, which let the batch in progress come to its end.",
)
app.command(pipeline)
dead = App(name=("dead", "dlq"), help="Dead letters: what groups gave up.", help_format="plaintext")
dead.command("penstock.cli.dead:ls", name="ls", help="List the dead letters of a topic, or which topics have any.")
dead.command("penstock.cli.dead:show", name="show", help="Say all that is known of a dead letter.")
dead.command("penstock.cli.dead:replay", name="replay", help="Give dead letters back to the groups that gave them up.")
dead.command("penstock.cli.dead_edit:edit", name="edit", help="Mend a dead letter, and give it back as a new message.")
dead.command("penstock.cli.dead:purge", name="purge", help="Throw dead letters away for good.")
app.command(dead)
job = App(name="job", help="Jobs of a queue.", help_format="plaintext")
job.command("penstock.cli.jobs:ls", name="ls", help="List the jobs of a queue that are not done.")
job.command("penstock.cli.jobs:show", name="show", help="Say all that is known of a job.")
job.command("penstock.cli.jobs:stats", name="stats", help="Say how many jobs wait, run and are dead, lane by lane.")
job.command("penstock.cli.job_acts:enqueue", name="enqueue", help="Have a job done by a worker of a queue.")
job.command("penstock.cli.jobs:result", name="result", help="Wait until a job is done, and print what it returned.")
job.command("penstock.cli.job_acts:cancel", name="cancel", help="See that jobs are not done.")
job.command("penstock.cli.job_acts:retry", name="retry", help="Try failed or dead jobs again now.")
job.command("penstock.cli.job_acts:run", name="run", help="Have jobs done now that wait for their time.")
job.command("penstock.cli.job_acts:priority", name="priority", help="Move a job to another lane.")
job.command("penstock.cli.jobs:pause", name="pause", help="Have the workers of a queue begin no more jobs.")
job.command("penstock.cli.jobs:resume", name="resume", help="Have the workers of a queue begin jobs again.")
job.command("penstock.cli.jobs:drain", name="drain", help="Wait until no job of a queue is queued or runs.")
job.command(
    "penstock.cli.migrate:migrate",
    name="migrate",
    help="Move the jobs of a queue in a sorted set into lanes: each once, however often it is interrupted.",
)
app.command(job)
context = App(name="context", help="Servers by name, for --context.", help_format="plaintext")
context.command("penstock.cli.context:ls", name="ls", help="List the servers that have a name.")
context.command("penstock.cli.context:add", name="add", help="Give a server a name.")
context.command("penstock.cli.context:use", name="use", help="Choose the server that is meant if none is named.")
context.command("penstock.cli.context:rm", name="rm", help="Forget a server.")
app.command(context)
cron = App(name="cron", help="Schedules of a queue.", help_format="plaintext")
cron.command("penstock.cli.cron:ls", name="ls", help="List the schedules of a queue.")
cron.command("penstock.cli.cron:pause", name="pause", help="Have a schedule tick no more until it is resumed.")
cron.command("penstock.cli.cron:resume", name="resume", help="Have a schedule tick again, from now on.")
cron.command("penstock.cli.cron:rm", name="rm", help="Forget a schedule that no code declares any more.")
app.command(cron)
app.command("penstock.cli.top:top", name="top", help="Watch topics and groups: rates, lag, and what is left to do.")
app.command("penstock.cli.bench:bench", name="bench", help="Measure your server: plain commands beside Penstock.")
app.command("penstock.cli.trace:trace", name="trace", help="Say what became of a message, from publishing to now.")
app.command(
    "penstock.cli.completion:completion",
    name="completion",
    help="Print the script by which bash, zsh or fish completes commands and options.",
)
app.command("penstock.cli.worker:worker", name="worker", show=False)
