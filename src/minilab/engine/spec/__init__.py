"""Speculative decoding: proposers, verification, and how it is counted."""
