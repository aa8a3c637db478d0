"""minilab: the package of Frontier Serving Lab.

Nothing is imported here, so that ``import minilab`` is instant and needs no dependency. The floors
are ``facts``, ``core``, ``sim``, ``judge``, ``lab`` and ``cli``; each imports only those before it.
"""

__version__ = "0.6.0.dev0"
