from .heads import heads_page, write_report

__all__ = ["heads_page", "write_report"]
