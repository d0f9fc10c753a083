"""An application with rows of its own, and the sessions that it may write them with."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from flask import Flask
from flask_sqlalchemy import SQLAlchemy
from sqlalchemy import Column, Engine, ForeignKey, Integer, MetaData, String, Table, event, insert, text
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from flask_async_jobs import AsyncJobs
from tests.waiting import wait_until

KINDS = ["flask-sqlalchemy", "session", "scoped_session"]

metadata = MetaData()
notes = Table(
    "notes",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("text", String, unique=True),
    Column("parent", ForeignKey("notes.id", deferrable=True, initially="DEFERRED")),
)


class Site:
    """An application, its engine, and a way to open a session."""

    def __init__(self, app: Flask, jobs: AsyncJobs, engine: Engine, kind: str, db: SQLAlchemy | None) -> None:
        self.app = app
        self.jobs = jobs
        self.engine = engine
        self._scoped = scoped_session(sessionmaker(engine))
        self._kind, self._db = kind, db

    def session(self) -> Any:
        """Open a session of the kind that is tested."""
        if self._db is not None:
            return self._db.session
        return self._scoped if self._kind == "scoped_session" else Session(self.engine)

    def texts(self) -> list[str]:
        """Return the notes that others can see."""
        with self.engine.connect() as connection:
            return list(connection.execute(text("SELECT text FROM notes ORDER BY id")).scalars())

    def jobs_stored(self) -> int:
        """Return how many jobs others can see."""
        with self.engine.connect() as connection:
            return int(connection.execute(text("SELECT count(*) FROM async_jobs")).scalar_one())


def note(session: Any, words: str, parent: int | None = None) -> None:
    """Write a row of the application's; a parent that does not exist is found out at the commit."""
    session.execute(insert(notes).values(text=words, parent=parent))


@contextmanager
def site(jobs: AsyncJobs, engine: Engine, kind: str, run: bool = False, **settings: Any) -> Iterator[Site]:
    """Give an application on the database of `engine`, inside its context; if `run`, with its dispatcher."""
    app = Flask("consumer")
    quick = {"PROCESSING_POLL_INTERVAL": "PT1H", "RECOVERY_SCAN_INTERVAL": "PT1H", "SHUTDOWN_TIMEOUT": 5}
    app.config.update({f"ASYNC_JOBS_{name}": value for name, value in {**quick, **settings}.items()})
    app.config["ASYNC_JOBS_PROCESSING_CONCURRENCY_LIMIT"] = 2
    db = None
    if kind == "flask-sqlalchemy":
        app.config["SQLALCHEMY_DATABASE_URI"] = engine.url.render_as_string(hide_password=False)
        db = SQLAlchemy(app)
    jobs.init_app(app, engine=None if db else engine)
    with app.app_context():
        own = db.engine if db else engine
        if own.dialect.name == "sqlite":
            event.listen(own, "connect", lambda raw, record: raw.execute("PRAGMA foreign_keys=ON").close())
        here = Site(app, jobs, own, kind, db)
        if run:
            jobs.start()
        try:
            yield here
        finally:
            jobs.shutdown()
            here._scoped.remove()
            if db:
                db.session.remove()
                own.dispose()


class Work:
    """A site whose handler of type `work` does what a test says, with a session of the kind that is tested."""

    def __init__(self, engine, kind, handler, **options):
        self.entered, self.gate, self.seen = threading.Event(), threading.Event(), []
        self._kept = []  # a session that its handler leaves open has nobody but the library to end it
        jobs = AsyncJobs()
        jobs.register("work", lambda ctx: handler(self, ctx, self.session()), **options)
        self._site = site(jobs, engine, kind, run=True, SHUTDOWN_TIMEOUT=3)

    def session(self):
        session = self.here.session()
        self._kept.append(session() if isinstance(session, scoped_session) else session)
        return session

    def __enter__(self):
        self.here = self._site.__enter__()
        return self

    def __exit__(self, *error):
        self.gate.set()
        for session in self._kept:
            session.close()
        return self._site.__exit__(*error)

    def start(self):
        return self.here.jobs.submit("work").job_id

    def end(self, job_id, timeout=4):
        """Wait until the job has ended and return it."""
        jobs = self.here.jobs
        return wait_until(lambda: (job := jobs.get(job_id)) and job.status.is_terminal and job, timeout)

    def run(self):
        """Run one job to its end; return how it ended, and the notes that are there."""
        job = self.end(self.start())
        return job, self.here.texts()
