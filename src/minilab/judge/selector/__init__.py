"""Which stack for which workload: a closed form that runs in a notebook and in the page alike.

The files of MANIFEST run under MicroPython too, so they use plain classes, ``math`` and nothing
else; their numbers about models and GPUs come from ``tables.py`` as JSON.
The last three set the sliders from metrics, and need the advisor's files too.
"""

MANIFEST = [
    "step.py",
    "room.py",
    "workload.py",
    "stack.py",
    "pool.py",
    "split.py",
    "shares.py",
    "verdict.py",
    "server.py",
    "choose.py",
    "levers.py",
    "report.py",
    "page.py",
    "lengths.py",
    "filled.py",
    "filling.py",
]
"""The files that the page loads, in an order in which each needs only earlier ones."""
