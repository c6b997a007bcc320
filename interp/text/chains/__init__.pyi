from .anchors import thought_anchors
from .chain import Chain
from .hidden import suppression_effects
from .linked import linked_chains
from .receivers import receiver_heads
from .rollouts import rollout_effects
from .vertical import sentence_attention

__all__ = [
    "Chain",
    "linked_chains",
    "receiver_heads",
    "rollout_effects",
    "sentence_attention",
    "suppression_effects",
    "thought_anchors",
]
