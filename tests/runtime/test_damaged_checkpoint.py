"""A checkpoint that is not complete, or not what was written, is refused with one error, whatever is wrong with it."""

from __future__ import annotations

import json
import zlib
from typing import Any

import pytest

from midstream.errors import MalformedMessage
from midstream.runtime import segment_log
from midstream.runtime.framing import frame_prefix
from midstream.runtime.messages import STATE_FORMAT, CellManifest, CellProgress, Command, decode, encode
from midstream.runtime.segment_log import SegmentHeader
from midstream.runtime.state_backend import CellsBegun, stored_version
from tests.runtime.test_durable_cell import STREAMS, TRIPLE, migrate, rows
from tests.spark.simulated import Fault, LoneCell, SimulatedCluster


@pytest.fixture
def cell(monkeypatch) -> LoneCell:
    """A cell with three segments and a migration in progress."""
    monkeypatch.setattr(segment_log, "SMALL_SEGMENT", 1)
    cell = LoneCell(TRIPLE, STREAMS, "(a b) c")
    for moment in (1, 2, 3):
        cell.run({name: rows((moment, 1, "x")) for name in "abc"}, given(cell) if moment == 3 else [])
    assert len(cell.segments) == 3
    return cell


def given(cell: LoneCell) -> list[Command]:
    return [migrate(1, cell.query.plan("a (b c)"), "gen-mig", {})]


def refused(cell: LoneCell, detail: str) -> None:
    with pytest.raises(MalformedMessage, match=rf"(?s)\[M3011\] the checkpoint is damaged.*detail: .*{detail}.*hint: "):
        cell.rebuild()


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_missing_segment_is_noticed(cell, place):
    """Its rows were missing from all later results, and nobody was told."""
    del cell.backend[sorted(cell.segments)[place]]
    refused(cell, f"Segment {place} of the rows in their windows is missing")


def test_a_segment_that_was_dropped_and_is_there_again_is_noticed(cell):
    key = sorted(cell.segments)[0]
    kept = cell.backend[key]
    cell.run({name: rows((1_000, 1, "x")) for name in "abc"})
    assert key not in cell.backend
    cell.rebuild()
    cell.backend[key] = kept
    refused(cell, "which is none of this state")


def test_segments_that_were_exchanged_are_noticed(cell):
    """Rows were taken for those of other moments, in an order that no window expects."""
    one, other, _ = sorted(cell.segments)
    cell.backend[one], cell.backend[other] = cell.backend[other], cell.backend[one]
    refused(cell, "Segment 0 cannot be read: .*it is segment 1")


def sealed(content: bytes) -> bytes:
    return zlib.crc32(content).to_bytes(4, "little") + content


HEADER = encode(SegmentHeader(1, [0], [0, 0, 0], [1, 1, 1]))
GARBAGE = {
    "empty": b"",
    "short": b"\x00",
    "noise": bytes(range(256)) * 4,
    "good header, garbage rows": frame_prefix(HEADER, [100]) + b"\xff" * 100,
    "the same with a checksum": sealed(frame_prefix(HEADER, [100]) + b"\xff" * 100),
    "no header, with a checksum": sealed(b""),
    "a header of other types, with a checksum": sealed(frame_prefix(b'{"windows": "x"}', [])),
    "fewer rows than windows, with a checksum": sealed(frame_prefix(HEADER, [])),
    "a window that is not there, with a checksum": sealed(frame_prefix(encode(SegmentHeader(1, [9], [0], [1])), [])),
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
def test_garbage_instead_of_a_segment_is_refused(cell, garbage):
    cell.backend[sorted(cell.segments)[1]] = garbage
    refused(cell, "Segment 1 cannot be read")


def test_every_changed_byte_of_a_segment_is_noticed(cell):
    key = sorted(cell.segments)[1]
    written = cell.backend[key]
    for place in range(0, len(written), 7):
        cell.backend[key] = written[:place] + bytes([written[place] ^ 1]) + written[place + 1 :]
        refused(cell, "Segment 1 cannot be read")


@pytest.mark.parametrize("key", ["progress", "manifest"])
def test_a_missing_part_is_named(cell, key):
    del cell.backend[key]
    refused(cell, f"The {key} of a cell is missing")


@pytest.mark.parametrize("key", ["progress", "manifest"])
@pytest.mark.parametrize("garbage", [b"", b"\xff\xfe", b"[]", b"{", b"null", b"[" * 100_000])
def test_garbage_instead_of_progress_or_manifest_is_refused(cell, key, garbage):
    cell.backend[key] = garbage
    with pytest.raises(MalformedMessage, match=r"\[M3011\] the checkpoint is damaged"):
        cell.rebuild()


@pytest.mark.parametrize("garbage", [b"", b"\xff\xfe", b"[]", b"{", b"null", b'{"version": 5}', b"[" * 100_000])
def test_the_version_of_a_damaged_cell_is_refused_with_the_same_error(cell, garbage):
    cell.backend["progress"] = garbage
    with pytest.raises(MalformedMessage, match=r"\[M3011\] the checkpoint is damaged"):
        stored_version(cell.backend)


def places_in(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where there is anything in a JSON document."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [*([path] if path else []), *(found for key, one in inside for found in places_in(one, (*path, key)))]


def replaced(document: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    changed = json.loads(json.dumps(document))
    at = changed
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return changed


KINDS: dict[str, type[CellProgress] | type[CellManifest]] = {"progress": CellProgress, "manifest": CellManifest}


@pytest.mark.parametrize("key", KINDS)
def test_any_changed_value_in_progress_or_manifest_is_refused(cell, key):
    """Only the code is the same for all: what is of another query, version or type is refused before the checksum."""
    written = json.loads(cell.backend[key])
    for path in places_in(written):
        cell.backend[key] = json.dumps(replaced(written, path, 12345)).encode()
        with pytest.raises(Exception, match=r"\[M30(05|11)\] the checkpoint "):
            cell.rebuild()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("cell",), {}),
        (("cell", "plans"), 5),
        (("cell", "plans", 0), {"no": "plan"}),
        (("cell", "box"), {"kind": "unheard of"}),
        (("cell", "box", "kind"), None),
        (("cell", "migrations"), "many"),
        (("cell", "running", 0, "part"), 99),
        (("cell", "running", 0, "record"), {}),
        (("first_plan",), "{"),
        (("first_plan",), "{}"),
    ],
)
def test_a_manifest_that_cannot_be_meant_is_refused_also_with_a_checksum(cell, path, value):
    changed = replaced(json.loads(cell.backend["manifest"]), path, value)
    manifest = decode(json.dumps(changed).encode(), CellManifest, "it", STATE_FORMAT)
    cell.backend["manifest"] = encode(manifest.sealed())
    refused(cell, "cannot be read")


@pytest.mark.parametrize("hosted", [False, True])
@pytest.mark.parametrize("lost", [0, 1])
def test_a_cell_whose_whole_state_is_missing_does_not_begin_anew(hosted, lost):
    """It did, and results of rows that had been in its windows were never made."""
    cluster = SimulatedCluster(TRIPLE, STREAMS, "(a b) c", cells=2, hosted=hosted)
    for moment in (1, 2):
        cluster.run({name: rows((moment, 1, "x"), (moment, 2, "y")) for name in "abc"})
    cluster.committed[lost] = {}
    with pytest.raises(MalformedMessage, match=rf"\[M3011\] (?s:.*)The state of cell {lost} is missing"):
        cluster.run({name: rows((3, 1, "x")) for name in "abc"}, faults=[Fault("query restarted")])


def test_cells_that_begin_for_the_first_time_are_not_damaged():
    tables = {name: rows((1, 1, "x")) for name in "abc"}
    cluster = SimulatedCluster(TRIPLE, STREAMS, "(a b) c", cells=2)
    # They reported, but the micro-batch was not committed.
    assert cluster.run(tables).num_rows == 1
    cluster.committed = [{}, {}]
    assert cluster.run(tables, faults=[Fault("query restarted")]).num_rows == 1
    # What another query reported in the same control directory says nothing.
    cluster.run(tables)
    assert CellsBegun.reported("another", cluster.figures).cells == {0, 1}
    CellsBegun.reported("another", cluster.figures).check("this", 0, "")
    CellsBegun().check(None, 0, "")


def test_a_checkpoint_that_is_intact_is_restored(cell):
    cell.rebuild()
    assert cell.durable.cell.has_running_migrations
    assert cell.run({"a": rows((4, 1, "x"))}).num_rows > 0
