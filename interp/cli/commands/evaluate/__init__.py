"""Evaluate attribution methods: faithfulness, agreement with people, sanity."""

GROUP = "Explain"
