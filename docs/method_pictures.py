"""Stub to be replaced."""

import method_table

CAPTIONS = {p.replace(" ", "_"): "x" for p in method_table.SECTIONS}
