"""Trains the tiny DeepSeek-V3 that the course ships: corpus, tokenizer, training, export."""
