"""State rescue: the snapshot of a stage from the checkpoint of a site that is dead, or of a node that was given up.

ISQD leaves the loss of a node to others. Here what a node has stored is in Spark's state, on disk, and a batch query
reads it (``spark.read.format("statestore")``), so a stage goes on elsewhere exactly where it was committed last.

The old site must not go on: two instances of a stage would both send results. If its lock is free, no process runs it;
then it is marked as lost while the lock is held, and never starts again. What its last micro-batches gave and had not
published is published first. If the site runs, only a node that the site itself has given up can be rescued.
"""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from midstream.deployment.protocol.messages import ProvideState, RescueState
from midstream.deployment.sites.deployment_directory import DeploymentDirectory
from midstream.deployment.sites.durable_files import held_lock, write_whole
from midstream.deployment.sites.node_group import stored_stage_of_group
from midstream.deployment.sites.site_output import SiteOutput
from midstream.errors import AlreadyRunning, NotRunning
from midstream.spark.cell_keys import cell_keys

__all__ = ["check_not_lost", "rescued_state"]


def rescued_state(spark: SparkSession, directory: DeploymentDirectory, question: RescueState) -> ProvideState | None:
    """The snapshot that is asked for; None if it cannot be had, or not yet."""
    site = directory.layout().site_of(question.lost_node)
    if not (directory.checkpoint(site) / "commits").exists():
        return None
    try:
        with held_lock(directory.lock(site), f'site "{site}"'):
            if not directory.is_without_nodes(site):
                # It only does not run at the moment, and will put the lost node's state aside itself.
                return None
            write_whole(directory.given_up(site), b"")
            for _ in SiteOutput(directory, site).publish():
                pass
            files = _stored(spark, directory, site, question, is_gone=True)
    except AlreadyRunning:
        files = _stored(spark, directory, site, question, is_gone=False)
    return None if files is None else ProvideState(question.stage, question.generation, files)


def check_not_lost(directory: DeploymentDirectory, site: str) -> None:
    """Refuse to start a site whose stages were rescued: they run elsewhere."""
    if directory.given_up(site).exists():
        raise NotRunning(
            f'site "{site}" was given up, and the stages of its nodes run elsewhere',
            detail=f"{directory.given_up(site)} says so.",
            hint="Use another site for its nodes.",
        )


def _stored(
    spark: SparkSession, directory: DeploymentDirectory, site: str, question: RescueState, *, is_gone: bool
) -> dict[str, bytes] | None:
    layout = directory.layout()
    key = cell_keys(layout.groups)[layout.group_of(question.lost_node)]
    rows = (
        spark.read.format("statestore")
        .option("stateVarName", "stored")
        .load(f"file://{directory.checkpoint(site)}")
        .where(F.col("key.group") == key)
        .select(F.col("user_map_key.name"), F.col("user_map_value.value"))
        .collect()
    )
    stored = {row[0]: bytes(row[1]) for row in rows}
    return stored_stage_of_group(stored, question.lost_node, question.stage, is_gone=is_gone)
