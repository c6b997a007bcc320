"""Why heads attend, what their outputs are made of, and attribution graphs of one prompt."""
