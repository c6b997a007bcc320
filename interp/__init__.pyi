from .attribution.declaration import attribute
from .attribution.evaluation.run import faithfulness
from .attribution.result import Attribution
from .causal.ablation import ablate
from .causal.importance import Importance
from .causal.measures import next_token_task, repeats_task
from .causal.pruning.prune import pruning_curve
from .causal.shapley_values.scores import shapley
from .causal.task import Task
from .circuits.contrast import ContrastTask
from .circuits.evaluation import evaluate_circuit
from .circuits.find import find_circuit
from .circuits.head_checks import confirm
from .circuits.result import Circuit
from .circuits.tasks import make_contrast
from .core.errors import InterpError
from .core.head import Head
from .core.prompts import Prompts, repeats
from .core.result import Result
from .core.table import HeadTable
from .heads.between_models.compare import compare
from .heads.between_models.match import match_heads
from .heads.checkpoints.emergence import emergence
from .heads.declaration import detector, experiment, statistic, weights
from .heads.kv_cache.cards import cache_cards
from .heads.kv_cache.plan import cache_plan
from .heads.patterns.capturing import view
from .heads.roles.decide import roles
from .heads.scoring import score
from .lens.direct import direct_logit_attribution
from .lens.logit import logit_lens
from .model.capture import ActivationCache
from .model.check import check_model
from .model.edits import Edit, gate, mean, resample, set_pattern, set_z, uniform, zero
from .model.load import load
from .model.model import Model
from .model.recorded.reading import RecordedActivations
from .model.recorded.recording import record_activations
from .profiles.run import profile
from .report.atlas.written import write_report
from .syntax.search import dependency_trees

__version__: str

__all__ = [
    "ActivationCache",
    "Attribution",
    "Circuit",
    "ContrastTask",
    "Edit",
    "Head",
    "HeadTable",
    "Importance",
    "InterpError",
    "Model",
    "Prompts",
    "RecordedActivations",
    "Result",
    "Task",
    "ablate",
    "attribute",
    "cache_cards",
    "cache_plan",
    "check_model",
    "compare",
    "confirm",
    "dependency_trees",
    "detector",
    "direct_logit_attribution",
    "emergence",
    "evaluate_circuit",
    "experiment",
    "faithfulness",
    "find_circuit",
    "gate",
    "load",
    "logit_lens",
    "make_contrast",
    "match_heads",
    "mean",
    "next_token_task",
    "profile",
    "pruning_curve",
    "record_activations",
    "repeats",
    "repeats_task",
    "resample",
    "roles",
    "score",
    "set_pattern",
    "set_z",
    "shapley",
    "statistic",
    "uniform",
    "view",
    "weights",
    "write_report",
    "zero",
]
