"""A stage's cell: it goes on from what it has stored, and knows which messages that is the effect of (I2)."""

import pytest

from midstream.deployment.protocol.messages import EnterMarker, Prepare
from midstream.deployment.protocol.stage_cell import StageCell, concatenated
from midstream.deployment.protocol.stage_instance import EDGES, StageInstance
from midstream.errors import MalformedMessage, MidstreamError
from tests.deployment.small_deployment import O2, O4, SmallDeployment, plans


@pytest.fixture
def instance():
    """O4 after two batches."""
    deployment = SmallDeployment()
    deployment.feed("N8", "b", (1, 2), (2, 3))
    deployment.feed("N8", "b", (4, 2))
    deployment.settle()
    return deployment.nodes["N5"].running[O4]


def test_a_cell_counts_the_messages_that_its_state_is_made_of(instance):
    assert instance.cell.taken == {O2: instance.inputs[O2].next_number} and instance.cell.taken[O2] >= 2


def test_a_restored_stage_is_the_same(instance):
    files = dict(instance.save())
    again = StageInstance.restored(instance.plan, dict(files))
    assert dict(again.save()) == files
    assert (again.cell.watermark, again.cell.frontier) == (instance.cell.watermark, instance.cell.frontier)
    assert again.cell.taken == instance.cell.taken


def test_a_state_that_is_not_the_effect_of_its_messages_is_noticed(instance):
    files = dict(instance.save())
    number = instance.inputs[O2].next_number
    wrong = files[EDGES].replace(f'"next_number":{number},"frontier"'.encode(), b'"next_number":0,"frontier"')
    assert wrong != files[EDGES]
    with pytest.raises(MalformedMessage, match="is inconsistent"):
        StageInstance.restored(instance.plan, {**files, EDGES: wrong})


def test_markers_count_as_messages():
    deployment = SmallDeployment()
    deployment.feed("N8", "b", (1, 2))
    deployment.settle()
    deployment.move()
    deployment.tell(Prepare)
    deployment.report()
    deployment.tell(EnterMarker)
    deployment.settle()
    join = deployment.nodes["N3"].running["q/join-3"]
    assert join.cell.taken[O4] == join.inputs[O4].next_number


def test_a_cell_without_its_progress_is_refused(instance):
    files = {key.removeprefix("cell/"): data for key, data in instance.save().items() if key.startswith("cell/")}
    StageCell.restored(instance.plan.plan, files)
    for key in files:
        if "segment" not in key:
            with pytest.raises(MidstreamError):
                StageCell.restored(instance.plan.plan, {name: data for name, data in files.items() if name != key})


def test_no_rows_have_the_types_of_their_columns():
    plan = next(p for p in plans() if p.stage.id == O4).plan
    types = [field.type for field in plan.schema]
    assert [column.type for column in concatenated([], types).columns] == types
