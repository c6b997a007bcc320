"""What every other folder builds on: results, errors, prompts, declarations, files, statistics."""
