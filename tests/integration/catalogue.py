"""What a database says of its tables, so that two ways of making them can be compared."""

import re

from sqlalchemy import Engine, text

_POSTGRES = {
    "columns": """
        SELECT a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, pg_get_expr(d.adbin, d.adrelid)
        FROM pg_attribute a LEFT JOIN pg_attrdef d ON (d.adrelid, d.adnum) = (a.attrelid, a.attnum)
        WHERE a.attrelid = to_regclass(:name) AND a.attnum > 0 ORDER BY a.attnum""",
    "constraints": """
        SELECT conname, contype::text, pg_get_constraintdef(oid) FROM pg_constraint
        WHERE conrelid = to_regclass(:name) AND contype <> 'n' ORDER BY conname""",
    "indexes": """
        SELECT c.relname, pg_get_indexdef(i.indexrelid) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
        WHERE i.indrelid = to_regclass(:name) ORDER BY c.relname""",
    "options": "SELECT reloptions FROM pg_class WHERE oid = to_regclass(:name)",
}


def catalogue(
    engine: Engine, schema: str | None = None, tables=("async_jobs", "async_job_log", "async_job_batches")
):
    """Return columns, constraints and indexes of the tables in a comparable form."""
    with engine.connect() as connection:
        if engine.dialect.name == "postgresql":
            return {
                (table, part): [
                    tuple(row) for row in connection.execute(text(query), {"name": _qualified(table, schema)})
                ]
                for table in tables
                for part, query in _POSTGRES.items()
            }
        source = f'"{schema}".sqlite_master' if schema else "sqlite_master"
        rows = connection.execute(text(f"SELECT tbl_name, name, sql FROM {source} ORDER BY name"))
        return [(name, _normal(sql, schema)) for table, name, sql in rows if table in tables]


def _qualified(table, schema):
    return f"{schema}.{table}" if schema else table


def _normal(sql, schema):
    """Return SQLite's stored text without white space, quotes and the schema, its parts in a fixed order."""
    if sql is None:
        return None
    flat = re.sub(r"\s+", " ", sql.replace('"', "")).replace(f"{schema}." if schema else "\0", "")
    head, _, body = flat.partition("(")
    return head.strip(), sorted(part.strip() for part in re.split(r",(?![^()]*\))", body.strip()[:-1]))
