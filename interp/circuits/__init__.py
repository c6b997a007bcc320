"""A circuit: heads and the edges between them, the tasks it explains, and how well it does."""
