"""The table that results go to: created, or refused before anything is written to it."""

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from midstream.delta.delta_types import check_partition_columns, delta_schema
from midstream.delta.location import TableLocation
from midstream.delta.table import prepare_table
from midstream.errors import BadOption, DuplicateName, TableMismatch, UnstorableResult

SCHEMA = pa.schema({"room": pa.string(), "n": pa.uint32(), "at": pa.timestamp("ms", "Europe/Paris")})


def prepare(path, schema=SCHEMA, *arguments, **options):
    return prepare_table(TableLocation.of(path), delta_schema(schema), *arguments, **options)


def test_a_table_has_the_columns_of_the_result(tmp_path):
    table = prepare(tmp_path / "t", SCHEMA, ["room"], {"delta.appendOnly": "true"})
    assert [(field.name, str(field.type.type)) for field in table.schema().fields] == [
        ("room", "string"), ("n", "long"), ("at", "timestamp"),
    ]  # fmt: skip
    assert table.metadata().partition_columns == ["room"]
    assert table.metadata().configuration == {"delta.appendOnly": "true"}
    again = prepare(tmp_path / "t", SCHEMA, ["room"], {"delta.appendOnly": "true"})
    assert again.metadata().id == table.metadata().id


STORED = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.binary(4): pa.binary(),
    pa.large_string(): pa.string(),
    pa.dictionary(pa.int32(), pa.string()): pa.string(),
    pa.timestamp("ns", "UTC"): pa.timestamp("us", "UTC"),
    pa.timestamp("s"): pa.timestamp("us"),
    pa.date64(): pa.date32(),
    pa.list_(pa.uint8()): pa.list_(pa.field("element", pa.int16())),
    pa.struct({"x": pa.uint8()}): pa.struct({"x": pa.int16()}),
}


@pytest.mark.parametrize("data_type", STORED, ids=str)
def test_types_that_delta_lacks_become_wider_ones(data_type):
    assert delta_schema(pa.schema({"x": data_type})).field("x").type == STORED[data_type]


VARIANT = pa.struct([pa.field("metadata", pa.binary(), metadata={"variant": "true"}), pa.field("value", pa.binary())])


@pytest.mark.parametrize(
    "data_type",
    [pa.time64("us"), pa.duration("us"), pa.decimal256(50, 2), pa.null(), pa.list_(pa.time32("s")), VARIANT],
    ids=str,
)
def test_types_that_cannot_be_stored_are_refused(data_type):
    with pytest.raises(UnstorableResult, match=r'(?s)\[M3016\] column "x" is .*, which Delta tables lack.*CAST'):
        delta_schema(pa.schema({"x": data_type}))


def test_names_that_cannot_be_stored_are_refused():
    with pytest.raises(UnstorableResult, match=r'(?s)with the name "a b".*expression AS name'):
        delta_schema(pa.schema({"a b": pa.int64()}))
    for names in (["x", "X"], ["x", "x"]):
        with pytest.raises(DuplicateName, match="two columns with the names"):
            delta_schema(pa.schema([(name, pa.int64()) for name in names]))


@pytest.mark.parametrize(
    ("partition_by", "words"),
    [
        (["rom"], 'Did you mean "room"'),
        (["x"], "cannot be partitioned by"),
        ("room", "Give each column once"),
        (["room", "room"], "Give each column once"),
        (["room", "n"], "by all its columns"),
    ],
)
def test_partition_columns_that_cannot_be_are_refused(partition_by, words):
    schema = pa.schema({"room": pa.string(), "n": pa.float64() if "x" in partition_by else pa.int64()})
    schema = schema.append(pa.field("x", pa.float64())) if "x" in partition_by else schema
    with pytest.raises(BadOption, match=words):
        check_partition_columns(schema, partition_by)


@pytest.mark.parametrize(
    ("there", "words"),
    [
        ({"room": pa.string(), "n": pa.int64()}, 'has no column "at"'),
        ({"room": pa.string(), "n": pa.int32(), "at": pa.timestamp("us", "UTC")}, r'(?s)"n" is integer in .* is long'),
        ({"room": pa.string(), "n": pa.int64(), "at": pa.timestamp("us")}, '"at" is timestamp_ntz'),
    ],
)
def test_a_table_with_other_columns_is_refused(tmp_path, there, words):
    write_deltalake(tmp_path / "t", pa.schema(there).empty_table())
    with pytest.raises(TableMismatch, match=words):
        prepare(tmp_path / "t")


def test_a_table_whose_columns_must_not_be_null_is_refused(tmp_path):
    """Files are not looked into when they are committed."""
    fields = [field.with_nullable(field.name != "room") for field in SCHEMA]
    write_deltalake(tmp_path / "t", pa.schema(fields).empty_table())
    with pytest.raises(TableMismatch, match=r'column "room" of .* must not be NULL, but it may be in the result'):
        prepare(tmp_path / "t")


def test_a_table_may_have_more_columns_in_another_order(tmp_path):
    there = pa.schema({"more": pa.string(), "at": pa.timestamp("us", "UTC"), "n": pa.int64(), "room": pa.string()})
    write_deltalake(tmp_path / "t", there.empty_table())
    prepare(tmp_path / "t")
    strict = there.set(0, pa.field("more", pa.string(), nullable=False))
    write_deltalake(tmp_path / "u", strict.empty_table())
    with pytest.raises(TableMismatch, match=r'"more" of .* must not be NULL'):
        prepare(tmp_path / "u")


def test_a_table_with_other_partitions_or_properties_is_refused(tmp_path):
    prepare(tmp_path / "t", SCHEMA, ["room"])
    with pytest.raises(TableMismatch, match=r'is partitioned by "room"'):
        prepare(tmp_path / "t")
    with pytest.raises(TableMismatch, match=r"does not have the property delta.appendOnly=true"):
        prepare(tmp_path / "t", SCHEMA, ["room"], {"delta.appendOnly": "true"})


def test_a_table_that_asks_more_of_its_writers_is_refused(tmp_path):
    table = prepare(tmp_path / "t")
    table.alter.add_constraint({"few": "n < 100"})
    with pytest.raises(TableMismatch, match=r"uses delta\.constraints\.few, which midstream does not support"):
        prepare(tmp_path / "t")
    for name in ("delta.setTransactionRetentionDuration", "delta.constraints.few"):
        with pytest.raises(BadOption, match=name):
            prepare(tmp_path / "u", SCHEMA, (), {name: "x"})


def test_what_is_no_table_is_refused(tmp_path):
    (tmp_path / "t").mkdir()
    prepare(tmp_path / "t")
    (tmp_path / "u").mkdir()
    (tmp_path / "u" / "part-0.parquet").touch()
    with pytest.raises(TableMismatch, match="has files, but is no Delta table"):
        prepare(tmp_path / "u")
    with pytest.raises(TableMismatch, match=r"(?s)there is no table .*, but the query has begun.*a new checkpoint"):
        prepare(tmp_path / "v", has_begun=True)
    assert not DeltaTable.is_deltatable(str(tmp_path / "v"))


def test_options_that_make_commits_unsafe_are_refused(monkeypatch):
    with pytest.raises(BadOption, match="AWS_S3_ALLOW_UNSAFE_RENAME is set"):
        TableLocation.of("s3://bucket/t", {"aws_s3_allow_unsafe_rename": "true"})
    monkeypatch.setenv("AWS_S3_ALLOW_UNSAFE_RENAME", "true")
    with pytest.raises(BadOption, match="conditional writes"):
        TableLocation.of("s3://bucket/t")
    monkeypatch.setenv("AWS_S3_ALLOW_UNSAFE_RENAME", "false")
    assert TableLocation.of("s3://bucket/t").address == "s3://bucket/t"
    for name in ("MOUNT_ALLOW_UNSAFE_RENAME", "allow_unsafe_rename"):
        with pytest.raises(BadOption, match=f"{name.upper()} is set"):
            TableLocation.of("/t", {name: "true"})
    for path in ("", None, 3):
        with pytest.raises(BadOption, match="the path of a table is"):
            TableLocation.of(path)
