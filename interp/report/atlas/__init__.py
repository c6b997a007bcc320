"""The atlas: one page of a model's heads, their roles, and every result of a folder."""
