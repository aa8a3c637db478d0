"""Trains the drafters that the course ships, on text that the target model writes itself."""
