"""Draws the pictures of the pages: ``python docs/pictures/draw.py`` writes the SVG files beside this one."""

from __future__ import annotations

from html import escape
from pathlib import Path

HERE = Path(__file__).resolve().parent
STYLE = """
  .card { fill: #fbfbf8; stroke: #d5d5cc }
  .box { fill: #e3f1ef; stroke: #2d7d74 }
  .file { fill: #f4ecd8; stroke: #a5812f }
  .lost { fill: #f7e1de; stroke: #b5483a }
  text { fill: #22302e; font: 14px sans-serif }
  .small { font-size: 12px }
  .bold { font-weight: bold }
  .line { stroke: #4a5a58; stroke-width: 1.6; fill: none }
  .head { fill: #4a5a58 }
  @media (prefers-color-scheme: dark) {
    .card { fill: #1d2322; stroke: #3a4442 }
    .box { fill: #1f3f3b; stroke: #5fb8ad }
    .file { fill: #41371f; stroke: #d0ab57 }
    .lost { fill: #4a2823; stroke: #dd7d6f }
    text { fill: #e6ecea }
    .line { stroke: #a9b8b5 }
    .head { fill: #a9b8b5 }
  }
"""


class Picture:
    """Boxes, arrows and text on a card; lengths are in pixels."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self._size = (width, height)
        self._title = title
        self._parts = [f'<rect class="card" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8"/>']

    def box(self, x: int, y: int, width: int, height: int, *lines: str, kind: str = "box") -> None:
        self._parts.append(f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="5"/>')
        top = y + height / 2 - 9 * (len(lines) - 1) + 5
        for number, line in enumerate(lines):
            style = "bold" if number == 0 else "small"
            self.text(x + width / 2, top + 18 * number, line, style=style, anchor="middle")

    def arrow(self, x1: int, y1: int, x2: int, y2: int, label: str = "", *, dashed: bool = False) -> None:
        dashes = ' stroke-dasharray="5 4"' if dashed else ""
        self._parts.append(f'<path class="line" d="M{x1} {y1} L{x2} {y2}" marker-end="url(#head)"{dashes}/>')
        if label:
            self.text((x1 + x2) / 2, (y1 + y2) / 2 - 7, label, style="small", anchor="middle")

    def text(self, x: float, y: float, text: str, *, style: str = "small", anchor: str = "start") -> None:
        self._parts.append(
            f'<text class="{style}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(text)}</text>'
        )

    def svg(self) -> str:
        width, height = self._size
        head = (
            '<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
            'orient="auto"><path class="head" d="M0 0 L8 4 L0 8 z"/></marker>'
        )
        size = f'viewBox="0 0 {width} {height}" width="{width}"'
        start = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">'
        parts = "\n".join(self._parts)
        return (
            f"{start}\n<title>{escape(self._title)}</title>\n<style>{STYLE}</style>\n<defs>{head}</defs>\n"
            f"{parts}\n</svg>\n"
        )


def message() -> Picture:
    drawn = Picture(800, 250, "The way of a message from a producer to its readers")
    drawn.box(20, 40, 150, 60, "producer", "rows → segment")
    drawn.box(20, 165, 150, 60, "refill", "on the producer's disk", kind="file")
    drawn.box(320, 40, 180, 60, "node", "number new? → append")
    drawn.box(320, 165, 180, 60, "log", "one sync, many segments", kind="file")
    drawn.box(640, 20, 140, 50, "consumer", "ack, skip, nack")
    drawn.box(640, 95, 140, 50, "Spark", "ranges of entries")
    drawn.box(640, 170, 140, 50, "another node", "link")
    drawn.arrow(170, 60, 320, 60, "1  segment")
    drawn.arrow(385, 100, 385, 165)
    drawn.text(290, 138, "2  write, sync")
    drawn.arrow(435, 165, 435, 100)
    drawn.arrow(320, 85, 170, 85)
    drawn.text(245, 103, "3  stored", anchor="middle")
    drawn.arrow(75, 100, 75, 165, dashed=True)
    drawn.arrow(115, 165, 115, 100, dashed=True)
    drawn.text(122, 138, "node is away: spill, send later")
    for y in (45, 120, 195):
        drawn.arrow(500, 70, 640, y)
    drawn.text(520, 30, "4  only what is synced")
    return drawn


def kinds() -> Picture:
    drawn = Picture(800, 330, "Which consumer gets which message, by the kind of the subscription")
    drawn.text(
        20, 30, "messages of a shard, in order; the letter is the key:  a1  b2  a3  c4  b5  a6", style="bold"
    )
    rows = (
        ("unique", ("a1 b2 a3 c4 b5 a6", "box"), ("a second consumer is refused", "lost")),
        ("failover", ("a1 b2 a3 c4 b5 a6", "box"), ("stands by, takes over", "file")),
        ("shared", ("a1 a3 b5", "box"), ("b2 c4 a6", "box")),
        ("key_shared", ("a1 a3 a6", "box"), ("b2 c4 b5", "box")),
    )
    for number, (kind, (first, one), (second, other)) in enumerate(rows):
        y = 50 + 68 * number
        drawn.text(20, y + 33, kind, style="bold")
        drawn.arrow(120, y + 28, 200, y + 28)
        drawn.box(200, y, 270, 54, "consumer 1", first, kind=one)
        drawn.box(500, y, 270, 54, "consumer 2", second, kind=other)
    return drawn


def hops() -> Picture:
    drawn = Picture(800, 210, "R and UR of two hops in a row")
    for x, name, lines in (
        (20, "A", "sends 1,000"),
        (330, "B", "gets 500, each once"),
        (640, "C", "gets 400, each once"),
    ):
        drawn.box(x, 30, 140, 56, name, lines)
    drawn.arrow(160, 58, 330, 58, "loses half")
    drawn.arrow(470, 58, 640, 58, "loses a fifth")
    drawn.text(245, 82, "R 0.5, UR 1", anchor="middle")
    drawn.text(555, 82, "R 0.8, UR 1", anchor="middle")
    drawn.text(400, 120, "A → C:  R = 0.5 · 0.8 = 0.4,  UR = 1", style="bold", anchor="middle")
    drawn.text(400, 150, "R: of the messages sent, the share of which a copy arrives", anchor="middle")
    drawn.text(400, 170, "UR: of the copies received, the share that is not a repeat", anchor="middle")
    drawn.text(
        400,
        190,
        "the product law; a repeat before the last hop is a second chance, and R is higher",
        anchor="middle",
    )
    return drawn


def takeover() -> Picture:
    drawn = Picture(800, 260, "A standby takes over from a lost active member")
    drawn.box(20, 25, 150, 54, "m1, active", "appends every change")
    drawn.box(20, 180, 150, 54, "m2, standby", "applies every change")
    drawn.box(245, 100, 310, 56, "stream on three NATS servers", "… 41  42  43  44: m2 takes over", kind="file")
    drawn.box(630, 25, 150, 54, "m1, lost", "record 44 is refused", kind="lost")
    drawn.box(630, 180, 150, 54, "m2, active", "appends 45, 46, …")
    drawn.arrow(170, 60, 300, 100)
    drawn.text(230, 70, "1  records 41 to 43")
    drawn.arrow(300, 156, 170, 200)
    drawn.text(240, 197, "2  has applied 43")
    drawn.arrow(630, 200, 500, 156)
    drawn.text(470, 207, "3  takes over behind 43")
    drawn.arrow(630, 60, 500, 100, dashed=True)
    drawn.text(420, 70, "4  too late: not behind 44")
    return drawn


PICTURES = {"message": message, "kinds": kinds, "hops": hops, "takeover": takeover}


def pictures() -> dict[str, str]:
    """The content of each file."""
    return {f"{name}.svg": draw().svg() for name, draw in PICTURES.items()}


if __name__ == "__main__":
    for name, text in pictures().items():
        (HERE / name).write_text(text, encoding="utf-8")
