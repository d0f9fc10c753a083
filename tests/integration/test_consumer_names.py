"""Names, binds and applications that an application has already: none of them clashes with the library's."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from flask import Blueprint, Flask, current_app
from flask_sqlalchemy import SQLAlchemy
from sqlalchemy import inspect
from sqlalchemy.orm import Mapped, mapped_column

from flask_async_jobs import AsyncJobs, JobContext
from tests.integration.apps import Site, new_app, serving


class Consumer:
    """An application's modules: its models, its `db` and its `AsyncJobs`, made once and used by every app."""

    def __init__(self) -> None:
        self.db = SQLAlchemy()
        self.jobs = AsyncJobs()
        db = self.db

        class Job(db.Model):  # type: ignore[name-defined, misc]
            __tablename__ = "jobs"
            id: Mapped[int] = mapped_column(primary_key=True)
            name: Mapped[str]

        class Batch(db.Model):  # type: ignore[name-defined, misc]
            __tablename__ = "batches"
            __bind_key__ = "archive"
            id: Mapped[int] = mapped_column(primary_key=True)

        self.Job = Job
        self.jobs.register("note", self.note)

    def note(self, ctx: JobContext) -> None:
        """Write down for whom the job ran."""
        self.db.session.add(self.Job(name=f"{current_app.name}:{ctx.job_id}"))
        self.db.session.commit()

    @contextmanager
    def app(self, name: str, url: str, archive: Path, *, run: bool = False) -> Iterator[Site]:
        """What the application's factory makes."""
        app = new_app(SQLALCHEMY_DATABASE_URI=url, SQLALCHEMY_BINDS={"archive": f"sqlite:///{archive}"})
        app.name = name
        pages = Blueprint("jobs", __name__, url_prefix="/vacancies")
        pages.add_url_rule("/", "list", lambda: "vacancies")
        app.register_blueprint(pages)
        app.extensions["jobs"] = "the consumer's"
        app.cli.command("jobs")(lambda: print("the consumer's"))
        self.db.init_app(app)
        try:
            with serving(self.jobs, None, app=app, run=run) as site:
                yield site
        finally:
            with app.app_context():
                self.db.session.remove()
                for engine in self.db.engines.values():
                    engine.dispose()

    def notes(self, app: Flask) -> list[str]:
        with app.app_context():
            return list(self.db.session.scalars(self.db.select(self.Job.name)))


@pytest.fixture
def consumer() -> Consumer:
    return Consumer()


def tables(consumer: Consumer, app: Flask, bind: str | None = None) -> set[str]:
    with app.app_context():
        return set(inspect(consumer.db.engines[bind]).get_table_names())


def test_the_consumers_own_jobs_and_the_librarys_live_side_by_side(
    consumer: Consumer, database_url: str, tmp_path: Path
) -> None:
    with consumer.app("one", database_url, tmp_path / "archive.sqlite", run=True) as site:
        with site.app.app_context():
            consumer.db.create_all()
        response = site.run("note")
        assert response.json["status"] == "COMPLETED"
        assert consumer.notes(site.app) == [f"one:{response.json['jobId']}"]
        assert site.get("/vacancies/").text == "vacancies"
        assert site.app.extensions["jobs"] == "the consumer's"
        assert site.app.test_cli_runner().invoke(args=["jobs"]).output == "the consumer's\n"
        assert site.app.blueprints["jobs"].url_prefix == "/vacancies"


def test_create_all_of_one_does_not_create_the_others_tables(
    consumer: Consumer, empty_database_url: str, tmp_path: Path
) -> None:
    with consumer.app("one", empty_database_url, tmp_path / "archive.sqlite") as site:
        with site.app.app_context():
            consumer.db.create_all()
        assert tables(consumer, site.app) == {"jobs"}
        assert tables(consumer, site.app, "archive") == {"batches"}
        with site.app.app_context():
            consumer.db.drop_all()
            consumer.jobs.metadata.create_all(consumer.db.engine)
        assert {"async_jobs"} <= tables(consumer, site.app)
        assert not {"jobs", "batches"} & tables(consumer, site.app)
        assert tables(consumer, site.app, "archive") == set()


def test_the_librarys_tables_are_where_its_engine_is(
    consumer: Consumer, empty_database_url: str, tmp_path: Path
) -> None:
    with consumer.app("one", empty_database_url, tmp_path / "archive.sqlite") as site:
        result = site.app.test_cli_runner().invoke(args=["async-jobs", "db", "upgrade"])
        assert result.exit_code == 0, result.output
        assert "async_jobs" in tables(consumer, site.app)
        assert tables(consumer, site.app, "archive") == set()


def test_the_library_may_use_another_bind_than_the_default(
    consumer: Consumer, empty_database_url: str, tmp_path: Path
) -> None:
    app = new_app(
        SQLALCHEMY_DATABASE_URI=empty_database_url,
        SQLALCHEMY_BINDS={"archive": f"sqlite:///{tmp_path / 'archive.sqlite'}"},
    )
    consumer.db.init_app(app)
    with serving(consumer.jobs, lambda: consumer.db.engines["archive"], app=app) as site, app.app_context():
        assert app.test_cli_runner().invoke(args=["async-jobs", "db", "upgrade"]).exit_code == 0
        assert site.post("note").status_code == 202
        assert tables(consumer, app) == set()
        assert "async_jobs" in tables(consumer, app, "archive")
        for engine in consumer.db.engines.values():
            engine.dispose()


def test_two_apps_of_one_factory_run_their_own_jobs(
    consumer: Consumer, postgres_url: str, sqlite_url: str, tmp_path: Path
) -> None:
    with (
        consumer.app("one", postgres_url, tmp_path / "1.sqlite", run=True) as first,
        consumer.app("two", sqlite_url, tmp_path / "2.sqlite", run=True) as second,
    ):
        for site in (first, second):
            with site.app.app_context():
                consumer.db.create_all()
        jobs = {site.app.name: [site.submit("note") for _ in range(5)] for site in (first, second)}
        for site, other in ((first, second), (second, first)):
            for job_id in jobs[site.app.name]:
                assert site.ended(job_id).json["status"] == "COMPLETED"
                assert other.status(job_id).status_code == 404
            assert sorted(consumer.notes(site.app)) == sorted(f"{site.app.name}:{i}" for i in jobs[site.app.name])
        consumer.jobs.shutdown(app=first.app)
        assert second.run("note").json["status"] == "COMPLETED"


def test_two_apps_have_settings_of_their_own(consumer: Consumer, sqlite_url: str) -> None:
    apps = [new_app(SQLALCHEMY_DATABASE_URI=sqlite_url) for _ in range(2)]
    for app in apps:
        consumer.db.init_app(app)
    with (
        serving(consumer.jobs, None, app=apps[0], RETRY_AFTER_SECONDS=7, URL_PREFIX="/tasks") as first,
        serving(consumer.jobs, None, app=apps[1]) as second,
    ):
        assert first.ask("POST", "/tasks/note").headers["Retry-After"] == "7"
        assert second.post("note").headers["Retry-After"] == "5"
        assert first.post("note").status_code == 404
    for app in apps:
        with app.app_context():
            consumer.db.engine.dispose()


def test_an_app_cannot_have_the_library_twice(consumer: Consumer, sqlite_url: str) -> None:
    app = new_app(ASYNC_JOBS_DATABASE_URL=sqlite_url)
    consumer.jobs.init_app(app)
    with pytest.raises(ValueError, match="call init_app once"):
        AsyncJobs().init_app(app)


def test_an_app_that_the_library_does_not_know_is_refused(consumer: Consumer) -> None:
    with pytest.raises(RuntimeError, match=r"jobs\.init_app\(app\)"):
        consumer.jobs.start(new_app())
    with pytest.raises(RuntimeError):
        consumer.jobs.start()
    with pytest.raises(RuntimeError):
        consumer.jobs.shutdown()
