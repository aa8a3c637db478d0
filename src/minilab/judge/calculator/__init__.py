"""What fits on a GPU, in the page: the budget of ``facts.capacity_ranks`` without its classes.

The files of MANIFEST run under MicroPython too, so they use plain classes, ``math`` and nothing
else; their numbers about models and GPUs come from ``tables.py`` as JSON. One instance, tensor
parallelism only; pipeline stages, DP attention and drafts are with ``minilab capacity``.
"""

MANIFEST = ["held.py", "budget.py", "fit.py", "shown.py", "commands.py", "page.py"]
"""The files that the page loads, in an order in which each needs only earlier ones."""
