"""The prefill/decode split for real: two processes of the engine, KV blocks sent between them.

The scheduler and the connector are those of the simulator; only what moves the bytes is different.
``python -m minilab.engine.pd --requests 20`` shows it. Two processes on one machine prove that the
split computes the same tokens, not that it is any faster.
"""
