"""Grading a class: every notebook in a process of its own, with limits; marks as a table.

``submission`` puts the lab's own check cells back, ``worker`` runs one notebook, ``folder`` runs
many and can go on where it stopped, ``marks`` is the table. It is made for an honest class: code
that sets out to deceive the process it runs in can. What touches the checker is reported, and a
folder from strangers belongs in a container.
"""

from minilab.lab.grade.folder import Limits, grade_folder

__all__ = ["Limits", "grade_folder"]
