"""Scrape: what one page of /metrics says, whatever else stands between its lines.

The reader takes Prometheus's text format and is patient: a line it cannot read is kept and counted,
never an error, because what people paste is cut off, mixed and doubled. This file runs in the page
too, under MicroPython, so it uses neither ``re`` nor ``typing``.
"""

BIGGEST_LINE = 65536
"""Characters; a longer line is no metric."""


class Sample:
    """One line: a name, its labels and a number."""

    def __init__(self, name: str, labels: dict[str, str], value: float) -> None:
        self.name = name
        self.labels = labels
        self.value = value


class Scrape:
    """The samples of one page, by name, and the lines that were none.

    Attributes:
        samples: name -> samples in order.
        unread: at most 20 lines that could not be read; ``num_unread`` counts all of them.
        repeated: samples whose name and labels had come before; the last one counts.
    """

    def __init__(self) -> None:
        self.samples: dict[str, list[Sample]] = {}
        self.unread: list[str] = []
        self.num_unread = 0
        self.repeated = 0

    def has(self, name: str) -> bool:
        """Whether the page has the metric."""
        return name in self.samples

    def of(self, name: str) -> list[Sample]:
        """Its samples; none if the page does not have it."""
        return self.samples.get(name, [])

    def total(self, name: str) -> float | None:
        """Sum over its labels (engines, reasons); None if the page does not have it."""
        found = self.of(name)
        return sum([sample.value for sample in found]) if found else None

    def label(self, name: str, key: str) -> str | None:
        """A label of its first sample."""
        found = self.of(name)
        return found[0].labels.get(key) if found else None


def read_scrape(text: str) -> Scrape:
    """Read a page of metrics; nothing in it is an error."""
    scrape = Scrape()
    places: dict[str, Sample] = {}
    for line in text.split("\n"):
        line = line.strip()
        if not line or line[0] == "#":
            continue
        sample = _sample(line)
        if sample is None:
            scrape.num_unread += 1
            if len(scrape.unread) < 20:
                scrape.unread.append(line[:120])
            continue
        key = sample.name + repr(sorted(sample.labels.items()))
        if key in places:
            places[key].value = sample.value
            scrape.repeated += 1
            continue
        places[key] = sample
        scrape.samples.setdefault(sample.name, []).append(sample)
    return scrape


def _sample(line: str) -> Sample | None:
    if len(line) > BIGGEST_LINE:
        return None
    brace = line.find("{")
    space = line.find(" ")
    labels: dict[str, str] = {}
    if brace >= 0 and (space < 0 or brace < space):
        name = line[:brace]
        end = _read_labels(line, brace + 1, labels)
        if end < 0:
            return None
        rest = line[end:]
    else:
        name, _, rest = line.partition(" ")
    words = rest.split()
    if not _is_name(name) or not 1 <= len(words) <= 2:
        return None
    value = _number(words[0])
    return None if value is None else Sample(name, labels, value)


def _is_name(text: str) -> bool:
    if not text or text[0] in "0123456789":
        return False
    for letter in text:
        if not ("a" <= letter <= "z" or "A" <= letter <= "Z" or letter in "_:0123456789"):
            return False
    return True


def _read_labels(line: str, at: int, labels: dict[str, str]) -> int:
    """Read ``key="value",...}`` from ``at``; the place after the brace, or -1 if it breaks off."""
    size = len(line)
    while at < size:
        while at < size and line[at] in ", ":
            at += 1
        if at < size and line[at] == "}":
            return at + 1
        equals = line.find("=", at)
        if equals < 0 or equals + 1 >= size or line[equals + 1] != '"':
            return -1
        key = line[at:equals].strip()
        at = equals + 2
        letters = []
        while at < size and line[at] != '"':
            if line[at] == "\\" and at + 1 < size:
                at += 1
                letters.append("\n" if line[at] == "n" else line[at])
            else:
                letters.append(line[at])
            at += 1
        if at >= size or not key:
            return -1
        labels[key] = "".join(letters)
        at += 1
    return -1


def _number(text: str) -> float | None:
    """A finite number, or infinity; None for NaN and for what is none."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if value == value else None
