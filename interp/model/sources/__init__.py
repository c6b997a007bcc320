"""One adapter per package or kind of storage that can hold a model."""
