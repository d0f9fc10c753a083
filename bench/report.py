"""How a figure is printed: with the floor it stands against, and the goal."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """One measured figure, and what it should be: at least `least` or at most `most`."""

    name: str
    value: float
    least: float | None = None
    most: float | None = None
    note: str = ""

    @property
    def holds(self) -> bool:
        """Whether the goal is met; a figure without a goal is for information."""
        return (self.least is None or self.value >= self.least) and (self.most is None or self.value <= self.most)

    def __str__(self) -> str:
        """The line of the report."""
        goal = f">= {self.least}" if self.least is not None else f"<= {self.most}" if self.most is not None else "-"
        return f"{self.name:34}{self.value:12,.2f}  {goal:>10}  {'' if self.holds else 'MISSED '}{self.note}"
