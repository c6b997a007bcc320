"""Roles of heads: what each head does, decided by a rule over scores, nulls and causal checks."""
