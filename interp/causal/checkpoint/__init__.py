"""Checkpoints without some heads, with a certificate of what the removal costs."""
