"""An application that touches its database when it is imported, so that with --preload its parent has a pool."""

from durable import create_app, db
from sqlalchemy import text

app = create_app()
with app.app_context():
    db.create_all()
    app.config["PARENT"] = db.session.scalar(text("SELECT pg_backend_pid()"))
