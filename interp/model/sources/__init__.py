"""Adapters for packages and storage formats that can hold a model."""
