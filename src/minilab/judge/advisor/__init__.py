"""What is wrong with a server, told from what it exports: ranked suspects with their evidence.

The files of MANIFEST run under MicroPython too: the page reads pasted metrics with them.
"""

MANIFEST = [
    "exposition.py",
    "names.py",
    "window.py",
    "signals.py",
    "finding.py",
    "rules_load.py",
    "rules_memory.py",
    "rules_spec.py",
    "rules_fleet.py",
    "diagnose.py",
    "page.py",
]
"""The files that the page loads, in an order in which each needs only earlier ones."""
