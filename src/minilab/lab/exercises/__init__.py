"""The exercises of each lab: ``labNN.py`` holds a tuple ``EXERCISES``."""
