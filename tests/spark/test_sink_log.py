"""Which files of a sink count."""

import json
from pathlib import Path

from midstream.spark.sink_log import committed_files


def test_files_of_committed_micro_batches_count_under_their_names_on_disk(tmp_path):
    assert committed_files(tmp_path) == []
    log = tmp_path / "_spark_metadata"
    log.mkdir()
    for batch, names in [("0", ["b.parquet"]), ("1", ["a%20b%25.parquet"]), ("1.compact", ["b.parquet"])]:
        lines = [json.dumps({"path": f"file:///some%20where/{name}", "action": "add"}) for name in names]
        (log / batch).write_text("\n".join(["v1", *lines]))
    (log / ".0.crc").write_bytes(b"\xff")
    (tmp_path / "left_by_a_failed_attempt.parquet").touch()
    assert committed_files(tmp_path) == [Path("/some where/a b%.parquet"), Path("/some where/b.parquet")]
