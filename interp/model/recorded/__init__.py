"""Activations of a corpus on disk: sharded safetensors files with an index."""
