"""Search for heads, streams and weights of a model by value."""
