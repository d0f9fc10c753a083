"""Two applications of one factory in one process, each with a database and a configuration of its own."""

import os

from consumer import create_app
from werkzeug.exceptions import NotFound
from werkzeug.middleware.dispatcher import DispatcherMiddleware

app = DispatcherMiddleware(
    NotFound(),
    {
        "/red": create_app(os.environ["RED_DATABASE_URL"], "red"),
        "/blue": create_app(os.environ["BLUE_DATABASE_URL"], "blue"),
    },
)
