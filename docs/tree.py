"""A picture of a drafted tree, and of the path that the target accepted."""

from __future__ import annotations

from html import escape

from eaglechat.wire.records import Origin, Round, Token

COLUMN, ROW, BOX, EDGE = 150, 44, 28, 16
_FONT = "ui-monospace,'SF Mono',Menlo,'DejaVu Sans Mono',Consolas,monospace"
_LIGHT = ("#ffffff", "#1b2430", "#6b7684", "#0b57e9", "#1a5b3b")
_DARK = ("#0f1720", "#dfe6ee", "#93a1b1", "#6fa8ff", "#7ed3a2")
_STYLE = """.card{{fill:{0}}}.line{{fill:none;stroke:{2}}}.took{{stroke:{3};stroke-width:2.5}}
rect.text,rect.note{{fill:{0};stroke:{2}}}rect.accepted{{fill:{0};stroke:{3};stroke-width:2}}
rect.bonus{{fill:{0};stroke:{4};stroke-width:2}}text.text{{fill:{1}}}text.note,tspan{{fill:{2}}}
text.accepted{{fill:{3};font-weight:bold}}text.bonus{{fill:{4};font-style:italic}}"""


def tree(round_: Round, before: str) -> str:
    """The tree drafted after the token `before`. Each drafted token has the draft's probability for
    it after its parent. The accepted path is marked, and ends in the target's own token."""
    places = _places(round_)
    path = _path(round_)
    last = round_.tokens[-1]
    at_end = (len(path) + 1, places[path[-1]][1] if path else 0.0)
    deepest = max([at_end[0], *(depth for depth, _ in places)])
    rows = max(row for _, row in places) + 1
    parts: list[str] = []
    middle = (rows - 1) / 2
    for index, drafted in enumerate(round_.drafted):
        start = places[drafted.parent] if drafted.parent >= 0 else (0, middle)
        parts.append(_edge(start, places[index], is_taken=index in path))
    parts.append(_edge(places[path[-1]] if path else (0, middle), at_end, is_taken=True))
    parts.append(_box((0, middle), before, "text", ""))
    for index, drafted in enumerate(round_.drafted):
        kind = "accepted" if index in path else "note"
        chance = "" if drafted.probability is None else f"{drafted.probability:.0%}"
        parts.append(_box(places[index], drafted.text or "", kind, chance))
    parts.append(_box(at_end, last.text, _kind(last), ""))
    width, height = (deepest + 1) * COLUMN, rows * ROW + 2 * EDGE
    style = f"{_STYLE.format(*_LIGHT)}@media(prefers-color-scheme:dark){{{_STYLE.format(*_DARK)}}}"
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" font-family="{_FONT}" font-size="14">',
            f"<style>{style}</style>",
            '<rect class="card" width="100%" height="100%" rx="8"/>',
            *parts,
            "</svg>\n",
        )
    )


def _places(round_: Round) -> list[tuple[int, float]]:
    """The depth and the row of each token: a leaf has a row of its own, others that of their first
    child, so that the likeliest path is straight."""
    children: dict[int, list[int]] = {}
    for index, drafted in enumerate(round_.drafted):
        children.setdefault(drafted.parent, []).append(index)
    places: dict[int, tuple[int, float]] = {}
    leaves = 0

    def place(index: int, depth: int) -> float:
        nonlocal leaves
        rows = [place(child, depth + 1) for child in children.get(index, ())]
        if not rows:
            rows, leaves = [float(leaves)], leaves + 1
        places[index] = (depth, rows[0])
        return rows[0]

    for first in children[-1]:
        place(first, 1)
    return [places[index] for index in range(len(round_.drafted))]


def _path(round_: Round) -> list[int]:
    """The drafted tokens that were accepted, in order."""
    path: list[int] = []
    for token in round_.tokens[: round_.n_accepted]:
        parent = path[-1] if path else -1
        path.append(
            next(
                index
                for index, drafted in enumerate(round_.drafted)
                if drafted.parent == parent and drafted.id == token.id
            )
        )
    return path


def _kind(token: Token) -> str:
    return "bonus" if token.origin is Origin.BONUS else "text"


def _edge(start: tuple[int, float], end: tuple[int, float], *, is_taken: bool) -> str:
    (x, y), (to_x, to_y) = _point(start), _point(end)
    x, bend = x + COLUMN - 40, (to_x - x - COLUMN + 40) / 2
    kind = "line took" if is_taken else "line"
    curve = f"M{x:g} {y:g}C{x + bend:g} {y:g} {to_x - bend:g} {to_y:g} {to_x:g} {to_y:g}"
    return f'<path class="{kind}" d="{curve}"/>'


def _box(place: tuple[int, float], text: str, kind: str, chance: str) -> str:
    x, y = _point(place)
    wide = COLUMN - 40
    note = f'<tspan dx="6" font-size="11" font-weight="normal">{chance}</tspan>'
    return (
        f'<rect class="{kind}" x="{x:g}" y="{y - BOX / 2:g}" width="{wide}" height="{BOX}" rx="6"/>'
        f'<text class="{kind}" x="{x + wide / 2:g}" y="{y + 5:g}" text-anchor="middle">'
        f"{escape(text.strip(), quote=False)}{note if chance else ''}</text>"
    )


def _point(place: tuple[int, float]) -> tuple[float, float]:
    depth, row = place
    return EDGE + depth * COLUMN, EDGE + (row + 0.5) * ROW
