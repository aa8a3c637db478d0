"""Finding: one suspect, how strongly it is suspected, and the evidence. Runs in the page too."""

FAULT, HINT, STATE = "fault", "hint", "state"
"""A fault explains a missed SLO; a hint is worth a look; a state (healthy, unknown) is neither."""


class Finding:
    """A suspect.

    Attributes:
        id: of the decision table.
        score: 0 to 1; above 0.5 the numbers confirm it.
        kind: FAULT, HINT or STATE.
        evidence: sentences with the numbers that were read.
        where: the server, if there are several.
    """

    def __init__(self, id: str, score: float, kind: str, evidence: list[str]) -> None:
        self.id = id
        self.score = max(0.0, min(1.0, score))
        self.kind = kind
        self.evidence = evidence
        self.where = ""


def ms(seconds: float) -> str:
    """A time for people."""
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def percent(share: float) -> str:
    """A share for people."""
    return f"{share * 100:.3g} %"
