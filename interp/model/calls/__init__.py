"""Attention calls as the rest of the package reads them: their place, rows and inputs."""
