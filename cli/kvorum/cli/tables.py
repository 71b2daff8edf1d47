"""Tables: in colour on a terminal, the same as plain text elsewhere."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import rich.table

_PADDING = 3


@dataclass(frozen=True, slots=True)
class Table:
    """A table of text.

    Attributes:
        title: what it shows.
        columns: names of the columns.
        rows: as many cells in each as there are columns.
        left: columns whose cells begin at the left; the others are numbers and end at the right.
    """

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]
    left: Collection[str] = ()

    @property
    def widths(self) -> list[int]:
        """Characters that each column takes."""
        cells = [self.columns, *self.rows]
        return [max(len(row[at]) for row in cells) for at in range(len(self.columns))]

    def without(self, column: str) -> Table:
        """Return the table without one of its columns."""
        at = self.columns.index(column)
        rows = [row[:at] + row[at + 1 :] for row in self.rows]
        return Table(self.title, self.columns[:at] + self.columns[at + 1 :], rows, self.left)

    def fitted(self, width: int, dispensable: Collection[str]) -> Table:
        """Return the table without those dispensable columns that do not fit into `width`.

        They go in the order given.
        """
        table = self
        for column in dispensable:
            if sum(table.widths) + _PADDING * len(table.columns) + 1 <= width:
                break
            if column in table.columns:
                table = table.without(column)
        return table

    def plain(self) -> str:
        """Return the table as lines of aligned columns, without its title."""
        widths = self.widths
        lines = []
        for row in (self.columns, *self.rows):
            cells = [
                cell.ljust(width) if column in self.left else cell.rjust(width)
                for cell, width, column in zip(row, widths, self.columns, strict=True)
            ]
            lines.append("  ".join(cells).rstrip())
        return "\n".join(lines)

    def rich(self, styles: Mapping[str, str]) -> rich.table.Table:
        """Return the table as rich renders it; a cell that `styles` names is drawn so."""
        import rich.box  # noqa: PLC0415  # only a terminal needs rich
        import rich.table  # noqa: PLC0415  # likewise
        import rich.text  # noqa: PLC0415  # likewise

        table = rich.table.Table(
            title=self.title,
            title_justify="left",
            title_style="bold",
            box=rich.box.SIMPLE_HEAD,
        )
        for column in self.columns:
            side: Literal["left", "right"] = "left" if column in self.left else "right"
            table.add_column(column, justify=side, no_wrap=True)
        for row in self.rows:
            table.add_row(*(rich.text.Text(cell, style=styles.get(cell, "")) for cell in row))
        return table
