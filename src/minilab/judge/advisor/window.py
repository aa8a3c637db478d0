"""Window: what one server did between two looks at it.

Counters and histograms are differences of the first and the last scrape; a server that has been
restarted in between, or that was looked at once, counts from its own start. Gauges are kept as they
were seen. Runs in the page too.
"""

from minilab.judge.advisor.exposition import Scrape
from minilab.judge.advisor.names import COUNTERS, GAUGES, HISTOGRAMS, MILLISECONDS, START


class Histogram:
    """Cumulative counts by upper bound; the last bound is infinity.

    Attributes:
        points: (upper bound, observations up to it), in order.
    """

    def __init__(self, points: list[tuple[float, float]], total: float, count: float) -> None:
        self.points = points
        self.total = total
        self.count = count

    @property
    def mean(self) -> float:
        """Sum over count."""
        return self.total / self.count

    def quantile(self, share: float) -> float:
        """Where ``share`` of the observations lies below, straight within a bucket; in the last,
        open bucket the mean of what is in it."""
        wanted = share * self.count
        low, below = 0.0, 0.0
        for bound, upto in self.points:
            if upto >= wanted and upto > below:
                if bound == float("inf"):
                    return self.open_mean()
                return low + (bound - low) * (wanted - below) / (upto - below)
            if bound != float("inf"):
                low, below = bound, upto
        return low

    def share_above(self, limit: float) -> float:
        """Share of the observations above ``limit``, straight within a bucket; what is in the last,
        open bucket counts as above if its mean is."""
        low, below = 0.0, 0.0
        for bound, upto in self.points:
            if limit < bound:
                if bound == float("inf"):
                    above = limit <= low or self.open_mean() > limit
                    return 1.0 - below / self.count if above else 0.0
                part = below + (upto - below) * (limit - low) / (bound - low)
                return min(1.0, max(0.0, 1.0 - part / self.count))
            low, below = bound, upto
        return 0.0

    def open_mean(self) -> float:
        """Mean of the observations above the last finite bound; those below it are taken to lie in
        the middle of their buckets, which errs by half a bucket at most."""
        low, below, known = 0.0, 0.0, 0.0
        for bound, upto in self.points:
            if bound == float("inf"):
                break
            known += (upto - below) * (low + bound) / 2
            low, below = bound, upto
        rest = self.count - below
        return max(low, (self.total - known) / rest) if rest > 0 else low


class Window:
    """Scrapes of one server, in the order in which they were taken.

    Attributes:
        since_start: counts are since the server's own start: one scrape, or a restart.
        restarted: the process start time changed between the scrapes.
    """

    def __init__(self, scrapes: list[Scrape]) -> None:
        self.last = scrapes[-1]
        self.scrapes = scrapes
        first = scrapes[0] if len(scrapes) > 1 else None
        self.restarted = first is not None and self._restarted(first)
        self.first = None if self.restarted else first
        self.since_start = self.first is None

    def _restarted(self, first: Scrape) -> bool:
        before, after = first.total(START), self.last.total(START)
        if before is not None and after is not None and before != after:
            return True
        for names in COUNTERS.values():
            for name in names:
                early, late = first.total(name), self.last.total(name)
                if early is not None and late is not None and late < early:
                    return True
        return False

    def counter(self, signal: str) -> float | None:
        """How much a counter grew; None if the server does not have it."""
        name = self._name(COUNTERS[signal])
        return None if name is None else self.growth(name)

    def growth(self, name: str) -> float | None:
        """The same for one metric by its own name."""
        late = self.last.total(name)
        if late is None:
            return None
        early = self.first.total(name) if self.first is not None else None
        return late - (early or 0.0)

    def histogram(self, signal: str) -> Histogram | None:
        """A histogram of what was observed; None if there is none, or nothing was."""
        for base in HISTOGRAMS[signal]:
            if not self.last.has(base + "_count"):
                continue
            count, total = self.growth(base + "_count"), self.growth(base + "_sum")
            if not count or count < 0 or total is None:
                continue
            points = self._points(base + "_bucket")
            if base.endswith(MILLISECONDS):
                points = [(bound / 1e3, upto) for bound, upto in points]
                total /= 1e3
            return Histogram(points or [(float("inf"), count)], total, count)
        return None

    def _points(self, name: str) -> list[tuple[float, float]]:
        late = _by_bound(self.last, name)
        early = _by_bound(self.first, name) if self.first is not None else {}
        points = [(bound, late[bound] - early.get(bound, 0.0)) for bound in sorted(late)]
        most = 0.0
        for at in range(len(points)):  # a page that was cut off may lack labels of some bounds
            most = max(most, points[at][1])
            points[at] = (points[at][0], most)
        return points

    def gauge(self, signal: str) -> list[float]:
        """The values seen, one per scrape that has it (the mean over a server's engines for shares,
        the sum for counts)."""
        name = self._name(GAUGES[signal])
        if name is None:
            return []
        seen = []
        for scrape in self.scrapes:
            found = [sample.value for sample in scrape.of(name)]
            if found:
                whole = sum(found)
                seen.append(whole if signal in ("running", "waiting") else whole / len(found))
        return seen

    def _name(self, names: list[str]) -> str | None:
        for name in names:
            if self.last.has(name):
                return name
        return None


def _by_bound(scrape: Scrape, name: str) -> dict[float, float]:
    """Counts by bound, summed over a server's engines."""
    counts: dict[float, float] = {}
    for sample in scrape.of(name):
        try:
            bound = float(sample.labels.get("le", "").replace("+Inf", "inf"))
        except ValueError:
            continue
        if bound == bound:
            counts[bound] = counts.get(bound, 0.0) + sample.value
    return counts
