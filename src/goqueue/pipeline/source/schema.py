"""The schema that Spark gives a reader: ours, or the user's own, which may be some of our columns in any order."""

from __future__ import annotations

from pyspark.sql.types import StructType

from goqueue.pipeline.columns import ALL_COLUMNS, spark_ddl
from goqueue.pipeline.errors import OptionError


def columns_in(schema: StructType) -> tuple[str, ...]:
    """The columns to build, in the order of the schema."""
    for field in schema.fields:
        if field.name not in ALL_COLUMNS:
            raise OptionError(f"the schema has a column {field.name}; a topic has {', '.join(ALL_COLUMNS)}")
        given, ours = field.dataType.simpleString(), _type_of(field.name)
        if given != ours:
            raise OptionError(
                f"the schema has column {field.name} as {given}; it is {ours}: read it so and cast it"
            )
    return tuple(field.name for field in schema.fields)


def _type_of(name: str) -> str:
    """As `simpleString` writes it."""
    return spark_ddl((name,)).removeprefix(f"`{name}` ").replace(" ", "")
