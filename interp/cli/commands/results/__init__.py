"""Read, query and combine folders of results of interp score.

A folder holds one Parquet file per model, metric and settings, and beside it the value of every
head on every prompt. FOLDER is ./results by default.
"""

GROUP = "Results"
