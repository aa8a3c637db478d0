"""Capstones: four directions for a mini-vLLM v0.6 of one's own, each with an unseen workload.

``directions`` says what is compared with what, ``workbook`` runs it and writes the report,
``anchors`` makes the two model reports of each direction, ``notebooks`` the notebooks one starts
from.
"""

from minilab.lab.capstone.directions import LETTERS, Direction, direction
from minilab.lab.capstone.workbook import Workbook

__all__ = ["LETTERS", "Direction", "Workbook", "direction"]
