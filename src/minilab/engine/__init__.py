"""mini-vLLM: the serving core driven by torch. Import what you need from its modules."""
