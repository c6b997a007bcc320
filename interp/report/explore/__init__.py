"""A view with a model behind it: type a prompt, see every head, zoom, ablate."""
