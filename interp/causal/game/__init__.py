"""The cooperative game over heads: values of coalitions, computed fast."""
