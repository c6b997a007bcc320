"""What the rest of the package reads of an attention call: its place, its rows, its inputs."""
