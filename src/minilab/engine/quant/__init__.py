"""Quantisation in the engine: KV formats and their scales, weight formats, and what they cost in
accuracy.

Number formats live in ``codecs``, scales in ``scales``; ``rtn``, ``awq`` and ``gptq`` choose 4-bit
weights, ``fp8_weights`` 8-bit ones; ``checkpoint`` reads and writes the public file layouts;
``passes`` runs a text through a model with every number in reach, and ``sanity`` makes the table.
"""
