"""AttentionInfluence: scores of texts by their dependence on a set of heads."""
