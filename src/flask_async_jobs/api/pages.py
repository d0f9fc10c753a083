"""Pages: where one begins, and how much it may have."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from flask import Request

from flask_async_jobs.api.headers import AFTER, limit_of
from flask_async_jobs.api.problems import Problem, ProblemRaised

_number: Final = re.compile("[0-9]{1,10}")
_last_position: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Pages:
    """How much a page has that is asked for without a limit, and how much it may have."""

    default: int
    longest: int

    @property
    def parameters(self) -> tuple[dict[str, Any], ...]:
        """The parameters of the query, as the OpenAPI document shows them."""
        return AFTER, limit_of(self.default, self.longest)

    def asked(self, request: Request) -> tuple[int, int]:
        """Return the position after which the page begins, and how much it may have.

        Raises:
            ProblemRaised: `after` is no whole number from 0 to 2,147,483,647, or `limit` none from 1 to `longest`.
        """
        after, limit = request.args.get("after", "0"), request.args.get("limit", str(self.default))
        errors = {}
        if not _number.fullmatch(after) or int(after) > _last_position:
            errors["after"] = [f"Must be a whole number from 0 to {_last_position}."]
        if not _number.fullmatch(limit) or not 1 <= int(limit) <= self.longest:
            errors["limit"] = [f"Must be a whole number from 1 to {self.longest}."]
        if errors:
            detail = "The page cannot be found with these parameters."
            raise ProblemRaised(Problem("invalid-parameters", detail, members={"errors": errors}))
        return int(after), int(limit)
