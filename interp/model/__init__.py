"""The only room that knows where a transformer keeps its heads; `interp.load` is its door."""
