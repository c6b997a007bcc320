"""Train on activations of a model: linear probes, sparse dictionaries."""

GROUP = "Change"
