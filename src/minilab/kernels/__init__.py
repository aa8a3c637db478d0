"""Triton kernels, each in one file with its plain-torch twin, its cost and its compile specs.

A kernel file reads from top to bottom: the ``@triton.jit`` kernel, the wrapper that checks its
arguments and picks a backend, the reference (``*_ref``), ``cost`` in bytes and FLOPs, and the table
of what is compiled ahead of time. The package needs torch, uses triton where there is one, and
imports nothing else of minilab, so that it runs on any machine with a GPU:

    from minilab.kernels.paged_decode import paged_decode, paged_decode_ref

Importing this package imports neither torch nor triton.
"""
