"""What the database does for a statement of the library: the plan, and the rows and pages that it reads."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql
from sqlalchemy import Engine, event

MODES = ["custom", "generic"]


@dataclass(eq=False)
class Sent(BaseException):
    """A statement on `async_jobs` with its parameters, as the driver would have got it."""

    statement: str
    parameters: Any


def sent(engine: Engine, call: Callable[[], object]) -> Sent:
    """Return the first statement on the tables that `call` sends; it is not executed."""

    def stop(connection, cursor, statement, parameters, context, executemany):
        if "async_job" in statement:
            raise Sent(statement, parameters)

    event.listen(engine, "before_cursor_execute", stop)
    try:
        call()
    except Sent as caught:
        return caught
    finally:
        event.remove(engine, "before_cursor_execute", stop)
    raise AssertionError("no statement on the tables was sent")


class Plan:
    """What PostgreSQL did for a statement, by `EXPLAIN (ANALYZE, BUFFERS)`."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._nodes = list(_below(root))
        self.pages: int = root["Shared Hit Blocks"] + root["Shared Read Blocks"]
        """How many pages of tables and indexes were looked at; one that was looked at twice counts twice."""

    @property
    def sequential(self) -> list[str]:
        """The tables that were read from end to end."""
        return [node["Relation Name"] for node in self._nodes if node["Node Type"].endswith("Seq Scan")]

    @property
    def rows(self) -> int:
        """How many rows were read, those included that a filter then threw away."""
        scans = (node for node in self._nodes if node["Node Type"].endswith("Scan") and "Relation Name" in node)
        return round(sum(_rows(scan) for scan in scans))

    def __str__(self) -> str:
        """The scans with their rows, for a test that fails."""
        scans = (node for node in self._nodes if "Scan" in node["Node Type"])
        return "; ".join(
            f"{scan['Node Type']} {scan.get('Index Name', scan.get('Relation Name', ''))} {_rows(scan):g}"
            for scan in scans
        )


def explained(engine: Engine, wanted: Sent, mode: str = "custom") -> Plan:
    """Execute a statement as a prepared one and roll it back.

    Args:
        engine: A PostgreSQL database.
        wanted: The statement.
        mode: `custom` plans it for its parameters, `generic` for any, as the server may do from the sixth time on.
    """
    statement, arguments = _prepared(wanted)
    connection = psycopg.connect(engine.url.set(drivername="postgresql").render_as_string(hide_password=False))
    try:
        connection.execute(f"SET plan_cache_mode = force_{mode}_plan")
        connection.execute(f"PREPARE wanted AS {statement}")
        execute = sql.SQL("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE wanted{}").format(arguments)
        ((plan,),) = connection.execute(execute).fetchall()
        connection.rollback()
    finally:
        connection.close()
    return Plan(plan[0]["Plan"])


def _prepared(wanted: Sent) -> tuple[str, sql.Composable]:
    names: list[str] = []

    def numbered(match: re.Match[str]) -> str:
        if match[1] not in names:
            names.append(match[1])
        return f"${names.index(match[1]) + 1}"

    statement = re.sub(r"%\((\w+)\)s", numbered, wanted.statement).replace("%%", "%")
    values = [sql.Literal(wanted.parameters[name]) for name in names]
    return statement, sql.SQL("({})").format(sql.SQL(", ").join(values)) if values else sql.SQL("")


def _below(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", ()):
        yield from _below(child)


def _rows(scan: dict[str, Any]) -> float:
    filtered = scan.get("Rows Removed by Filter", 0) + scan.get("Rows Removed by Index Recheck", 0)
    rows: float = (scan["Actual Rows"] + filtered) * scan["Actual Loops"]
    return rows
