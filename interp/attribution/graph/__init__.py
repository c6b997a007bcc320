"""Layered graph of attention: rollout, maximum flow and their bounds."""
