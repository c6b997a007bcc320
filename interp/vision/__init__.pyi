from . import language
from .added_register import added_register
from .agreement import map_agreement
from .class_queries import ClassQueries, query_maps
from .class_token import class_token_effects
from .correction import correct_spurious_heads
from .descriptions import describe_heads
from .direct_effects import image_direct_effects
from .folder import read_images
from .high_norm_tokens import high_norm_tokens
from .images import image_batch
from .maps import image_maps
from .parts import image_parts
from .patch_distance import patch_distance
from .pooling import pooling_attention
from .readout_accuracy import head_readouts
from .register_neurons import register_neurons
from .spurious import locate_spurious_heads
from .text_tower import text_embeddings
from .token_pruning import prune_image_tokens

__all__ = [
    "ClassQueries",
    "added_register",
    "class_token_effects",
    "correct_spurious_heads",
    "describe_heads",
    "head_readouts",
    "high_norm_tokens",
    "image_batch",
    "image_direct_effects",
    "image_maps",
    "image_parts",
    "language",
    "locate_spurious_heads",
    "map_agreement",
    "patch_distance",
    "pooling_attention",
    "prune_image_tokens",
    "query_maps",
    "read_images",
    "register_neurons",
    "text_embeddings",
]
