#!/usr/bin/env python3
"""Writes the example documents beside this file. The same bytes on every machine.

article.html   a page as people write them
table.html     one large table
outline.html   lists in lists, deep
guide.xml      a television guide with namespaces

All text is made up here. The random numbers are a generator of our own, so that no version of
Python changes them. `generate.py --check` says whether the files are what this program writes.
"""

import sys
from html import escape
from pathlib import Path

HERE = Path(__file__).resolve().parent


class Dice:
    """Knuth's 64-bit linear congruential generator; the high bits are good enough for prose."""

    def __init__(self, seed):
        self.state = seed

    def below(self, limit):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.state >> 33) % limit

    def pick(self, items):
        return items[self.below(len(items))]


ARTICLE = """<!DOCTYPE html>
<html lang="en">
<head>
  <meta charset="utf-8">
  <title>The ferry that learned to wait - Harbour Letters</title>
  <meta name="description" content="Why the island boat now leaves four minutes late, on purpose.">
  <link rel="stylesheet" href="/style/letters.css">
  <script>document.documentElement.classList.add("scripts");</script>
</head>
<body class="letter">
  <header id="top">
    <p class="masthead"><a href="/">Harbour Letters</a></p>
    <nav aria-label="Sections">
      <ul class="sections">
        <li><a href="/boats">Boats</a></li>
        <li><a href="/weather">Weather</a></li>
        <li><a href="/people" aria-current="true">People</a></li>
        <li><a href="/archive">Archive</a></li>
      </ul>
    </nav>
  </header>
  <main>
    <article data-id="1187" class="long-read">
      <h1>The ferry that learned to wait</h1>
      <p class="byline">By <a rel="author" href="/people/ines-halvard">Ines Halvard</a>,
        <time datetime="2024-10-03">3 October</time>, 6 minutes to read</p>
      <figure>
        <img src="/pictures/slipway.jpg" alt="A small car ferry at a slipway in fog" width="1280" height="720">
        <figcaption>The <i>Maren</i> at the north slipway, seven minutes past seven.</figcaption>
      </figure>
      <p class="lead">For thirty-one years the first boat left at seven. Now it leaves at
        seven-oh-four, and everybody is on time.</p>
      <h2 id="timetable">A timetable of one</h2>
      <p>The bus from the upper village arrives at the slipway at 6:58 when the road is dry. When it
        is wet, it arrives at 7:01, and its eleven passengers used to watch the stern of the
        <i>Maren</i> grow small. &ldquo;You could see the captain see us,&rdquo; says Tobias Renn,
        who teaches on the mainland. &ldquo;He had a timetable. So did we.&rdquo;</p>
      <p>Nobody had ever put the two sheets of paper side by side. The bus belongs to the parish, the
        boat to the harbour board, and the rain to nobody.<sup><a href="#note-1">1</a></sup></p>
      <h2 id="four-minutes">Four minutes</h2>
      <p>What changed was small. The mate began to write down, on the back of the ticket roll, how
        many people came running after the ramp was up:</p>
      <table class="figures">
        <caption>People left behind, by month</caption>
        <thead><tr><th>Month</th><th>Wet mornings</th><th>Left behind</th></tr></thead>
        <tbody>
          <tr><td>March</td><td>9</td><td>74</td></tr>
          <tr><td>April</td><td>6</td><td>41</td></tr>
          <tr><td>May</td><td>3</td><td>16</td></tr>
          <tr class="after"><td>June</td><td>4</td><td>0</td></tr>
        </tbody>
      </table>
      <p>After the third sheet the board moved the departure by four minutes. The crossing takes
        twenty-two, the mainland train leaves at 7:41, and there had always been room.</p>
      <blockquote>
        <p>We did not make the boat faster. We stopped making the people late.</p>
        <footer>Captain Oda Lindqvist</footer>
      </blockquote>
      <h2 id="what-it-costs">What it costs</h2>
      <p>Fuel: nothing. Wages: four minutes, which the crew now spends on coffee. The board counts
        one complaint, from a man whose watch had been set by the ferry, and who has since bought a
        <a href="https://time.example/radio-clocks">radio clock</a>.</p>
      <ol class="notes">
        <li id="note-1">The parish council disputes this. See its letter of
          <a href="/archive/2024/09/12">12 September</a>.</li>
      </ol>
      <p class="tags"><a class="tag" href="/tags/ferries">ferries</a>
        <a class="tag" href="/tags/timetables">timetables</a>
        <a class="tag" href="/tags/small-fixes">small fixes</a></p>
    </article>
    <aside>
      <h2>More letters</h2>
      <ul>
        <li><a href="/letters/1186">The lamp on the breakwater</a></li>
        <li><a href="/letters/1183">How to read a tide table</a></li>
        <li><a href="/letters/1179">A dog with a season ticket</a></li>
      </ul>
      <form action="/subscribe" method="post">
        <label for="mail">A letter every Thursday</label>
        <input id="mail" name="mail" type="email" placeholder="you@home.example" required>
        <button type="submit">Send me letters</button>
      </form>
    </aside>
  </main>
  <footer class="imprint">
    <p>Harbour Letters is printed and put online by its readers.
      <a href="/imprint">Imprint</a> &middot; <a href="/privacy">Privacy</a></p>
  </footer>
</body>
</html>
"""


def article():
    return ARTICLE


STARTS = ["Alder", "Birk", "Cran", "Dunmor", "Elder", "Fallow", "Gar", "Hollin", "Iver", "Juni",
          "Kest", "Lin", "Mar", "Nether", "Oaken", "Pell", "Quarry", "Rush", "Stan", "Thorn"]
ENDS = ["bridge", "by", "cross", "dale", "field", "ford", "gate", "ham", "haven", "hill", "holm",
        "ley", "mere", "moor", "ness", "stead", "thorpe", "ton", "wick", "worth"]
LINES = ["Coast", "Valley", "Northern", "Orchard", "Quarry", "Lakeland"]


def table(rows=6200):
    dice = Dice(20)
    out = ["""<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><title>Departures of one day, all stations</title></head>
<body>
<h1>Departures of one day</h1>
<p>Every departure of the six lines, with what was planned and what was.</p>
<table id="departures" class="board">
<thead><tr><th>No.</th><th>Line</th><th>From</th><th>To</th><th>Platform</th><th>Planned</th>"""
           """<th>Left</th><th>Remarks</th></tr></thead>
<tbody>
"""]
    for number in range(1, rows + 1):
        minute = 240 + number * 1140 // rows
        delay = dice.pick([0, 0, 0, 0, 0, 1, 1, 2, 4, 11])
        state = "late" if delay > 3 else "delayed" if delay else "punctual"
        name = dice.pick(STARTS) + dice.pick(ENDS)
        to = dice.pick(STARTS) + dice.pick(ENDS)
        left = minute + delay
        remark = {"late": "waited for a connection", "delayed": "signal", "punctual": ""}[state]
        out.append(
            f'<tr id="d{number}" class="{state}"><td>{number}</td><td>{dice.pick(LINES)}</td>'
            f'<td class="station">{name}</td><td>{to}</td><td>{1 + dice.below(12)}</td>'
            f"<td>{minute // 60 % 24:02}:{minute % 60:02}</td>"
            f"<td>{left // 60 % 24:02}:{left % 60:02}</td><td>{remark}</td></tr>\n"
        )
    out.append("</tbody>\n</table>\n</body>\n</html>\n")
    return "".join(out)


def outline(depth=2500):
    dice = Dice(30)
    verbs = ["Open", "Sort", "Label", "Weigh", "Fold", "Count", "Wrap", "Store"]
    things = ["the box", "the smaller box", "each envelope", "the card inside", "a sleeve",
              "the next drawer", "whatever is left"]
    out = ["""<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><title>Instructions that contain instructions</title></head>
<body>
<h1>Instructions that contain instructions</h1>
<p>Two and a half thousand lists, each inside the one before: deep enough that a program which
follows a tree by calling itself runs out of stack.</p>
"""]
    for level in range(1, depth + 1):
        out.append(
            f'<ul><li id="level-{level}"><span>{level}. {dice.pick(verbs)} {dice.pick(things)}'
            f"</span>{' <b>carefully</b>' if dice.below(7) == 0 else ''}\n"
        )
    out.append("</li></ul>\n" * depth)
    out.append("</body>\n</html>\n")
    return "".join(out)


CHANNELS = ["One", "Two", "Harbour", "Meadow", "Night", "Kids", "Science", "Film", "Music", "Sport",
            "Local North", "Local South"]
KINDS = ["film", "series", "news", "documentary", "music", "sport", "children", "talk"]
TITLES = {
    "film": ["The Last {} of Winter", "A {} for Two", "Nobody's {}", "Return of the {}"],
    "series": ["{} Street", "The {} Doctor", "Inspector {}", "{} and Sons"],
    "news": ["{} Tonight", "The {} Report", "Morning {}", "{} in Brief"],
    "documentary": ["How a {} Works", "Secrets of the {}", "{}: A Biography", "Life of a {}"],
    "music": ["{} Sessions", "Live from the {}", "An Evening of {}", "The {} Orchestra"],
    "sport": ["{} League", "The {} Cup", "{} Highlights", "Round the {}"],
    "children": ["The Little {}", "{} and Friends", "Captain {}", "Who Ate the {}?"],
    "talk": ["Talking {}", "{} at Ten", "The {} Hour", "Ask a {}"],
}
NOUNS = ["Lighthouse", "Kettle", "Bridge", "Orchard", "Clock", "Sparrow", "Engine", "Lantern",
         "River", "Violin", "Compass", "Baker", "Glacier", "Harbour", "Beetle", "Mountain"]
FIRST = ["Ada", "Bram", "Cora", "Dario", "Edda", "Finn", "Greta", "Hugo", "Ida", "Jonas", "Kaya",
         "Lars", "Mila", "Nils", "Orla", "Piet"]
LAST = ["Abel", "Brandt", "Castell", "Dreyer", "Ekholm", "Faber", "Grandin", "Holt", "Iversen",
        "Jansen", "Kessler", "Lund", "Moreau", "Nyland", "Okafor", "Petrov"]
WHAT = ["loses", "finds", "builds", "hides", "repairs", "sells", "inherits", "follows"]
WHERE = ["in a town by the sea", "on the night train", "after the flood", "in a single afternoon",
         "while nobody watches", "at the edge of the map", "against all advice", "for the last time"]


def person(dice):
    return f"{dice.pick(FIRST)} {dice.pick(LAST)}"


def plot(dice):
    return (f"{person(dice)} {dice.pick(WHAT)} a {dice.pick(NOUNS).lower()} {dice.pick(WHERE)}, "
            f"and {person(dice)} {dice.pick(WHAT)} it {dice.pick(WHERE)}.")


def guide(days=21):
    dice = Dice(40)
    out = ["""<?xml version="1.0" encoding="UTF-8"?>
<!-- A made-up television guide: three weeks of twelve channels. -->
<guide xmlns="urn:evermap:example:guide" xmlns:people="urn:evermap:example:people"
       xmlns:x="urn:evermap:example:extra" region="everywhere" issued="2024-09-30">
"""]
    for number, name in enumerate(CHANNELS, 1):
        out.append(f'  <channel id="c{number:02}"><name>{escape(name)}</name>'
                   f'<x:logo href="logos/c{number:02}.svg"/></channel>\n')
    serial = 0
    for number in range(1, len(CHANNELS) + 1):
        minute = 0
        while minute < days * 1440:
            length = dice.pick([15, 25, 30, 30, 45, 50, 60, 90, 105])
            out.append(programme(dice, serial, number, minute, min(minute + length, days * 1440)))
            minute += length
            serial += 1
    out.append("</guide>\n")
    return "".join(out)


def stamp(minute):
    day, minute = divmod(minute, 1440)
    return f"2024-10-{1 + day:02}T{minute // 60:02}:{minute % 60:02}:00Z"


def programme(dice, serial, channel, start, stop):
    kind = dice.pick(KINDS)
    title = dice.pick(TITLES[kind]).format(dice.pick(NOUNS))
    lines = [f'  <programme id="p{serial}" channel="c{channel:02}" start="{stamp(start)}"'
             f' stop="{stamp(stop)}">\n',
             f'    <title xml:lang="en">{escape(title, quote=False)}</title>\n',
             f"    <category>{kind}</category>\n",
             f"    <summary>{escape(plot(dice), quote=False)}</summary>\n"]
    if kind in ("film", "series", "documentary"):
        lines.append(f"    <people:credits><people:director>{person(dice)}</people:director>")
        for _ in range(1 + dice.below(3)):
            lines.append(f'<people:actor role="{dice.pick(FIRST)}">{person(dice)}</people:actor>')
        lines.append("</people:credits>\n")
    if kind == "series":
        lines.append(f'    <x:episode season="{1 + dice.below(6)}" number="{1 + dice.below(20)}"/>\n')
    if dice.below(5) == 0:
        lines.append(f"    <note><![CDATA[Repeat of {stamp(start)[:10]}; subtitles & sign language]]></note>\n")
    lines.append("  </programme>\n")
    return "".join(lines)


PAGES = {"article.html": article, "table.html": table, "outline.html": outline, "guide.xml": guide}


def main():
    check = sys.argv[1:] == ["--check"]
    if sys.argv[1:] and not check:
        sys.exit(__doc__)
    different = []
    for name, make in PAGES.items():
        path, contents = HERE / name, make().encode("utf-8")
        if not check:
            path.write_bytes(contents)
            print(f"{name}: {len(contents)} bytes")
        elif not path.exists() or path.read_bytes() != contents:
            different.append(name)
    if different:
        sys.exit(f"not what generate.py writes: {', '.join(different)}; run it without --check")


if __name__ == "__main__":
    main()
