"""A lake of Parquet files that any reader can trust: what is in it is what its log says, whatever was killed when."""

from penstock.lake.lake import Lake as Lake
from penstock.lake.manifest import Commit as Commit
from penstock.lake.manifest import DataFile as DataFile
from penstock.lake.manifest import Reached as Reached
from penstock.lake.manifest import Snapshot as Snapshot
