"""Steering: heads scaled or added to, in doses, and vectors of functions moved to other prompts."""
