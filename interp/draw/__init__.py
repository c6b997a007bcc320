"""Figures, colours and the page shell, made from plain rows."""
