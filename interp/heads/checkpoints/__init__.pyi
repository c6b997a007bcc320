from .rises import half_rise, rise_order

__all__ = ["half_rise", "rise_order"]
