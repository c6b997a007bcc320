from .anchors import thought_anchors
from .anchors_result import Anchors
from .chain import Chain
from .hidden import hide_spans, suppression_effects
from .linked import linked_chains
from .receivers import received_scores, receiver_heads
from .rollouts import rollout_effects
from .sentences import sentence_spans
from .vertical import sentence_attention, vertical_scores

__all__ = [
    "Anchors",
    "Chain",
    "hide_spans",
    "linked_chains",
    "received_scores",
    "receiver_heads",
    "rollout_effects",
    "sentence_attention",
    "sentence_spans",
    "suppression_effects",
    "thought_anchors",
    "vertical_scores",
]
