"""Heads of vision transformers and image towers: where they look, what they write, what they cost.

    from interp.bundled import shape_images
    from interp import vision

    images = shape_images.shape_images(0, 200)
    vision.image_direct_effects("bundled:shapes", images, images.labels)
    vision.map_agreement("bundled:shapes", images, images.masks)

The command is `interp study vision`. Importing this package does not load torch.
"""

from interp.core.public_names import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
