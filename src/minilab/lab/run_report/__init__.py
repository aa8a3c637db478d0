"""One file that says of some runs what was served, who wins where, who loses where, and how one
knows: the report of a capstone.

``runs`` reads the logs, ``grid`` finds what varies, ``verdicts`` compares sides, ``calibration``
holds predictions against runs, ``pictures`` draws, ``page`` writes it down.
"""

from minilab.lab.run_report.page import Wanted, report_page, report_parts
from minilab.lab.run_report.runs import Run, read_runs, run_of

__all__ = ["Run", "Wanted", "read_runs", "report_page", "report_parts", "run_of"]
