"""Mixtures of experts: the layer, who gets how much to do, and experts on several processes."""
