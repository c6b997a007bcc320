from . import (
    alignment,
    attribution,
    bundled,
    cache,
    causal,
    circuits,
    core,
    dictionaries,
    heads,
    lens,
    model,
    planted,
    policies,
    probes,
    profiles,
    report,
    safety,
    syntax,
    testing,
    text,
    vision,
)
from .attribution.declaration import attribute
from .attribution.evaluation.run import faithfulness
from .causal.ablation import ablate
from .causal.shapley_values.scores import shapley
from .causal.text_tasks import repeats_task
from .circuits.find import find_circuit
from .circuits.head_checks import confirm
from .core.errors import InterpError
from .core.head import Head
from .core.prompts import Prompts, repeats
from .core.result import Result
from .core.table import HeadTable
from .heads.between_models.compare import compare
from .heads.declaration import detector
from .heads.patterns.capturing import view
from .heads.roles.decide import roles
from .heads.scoring import score
from .model.edits import zero
from .model.load import load
from .model.model import Model
from .model.recorded.recording import record_activations
from .profiles.judge import judge
from .profiles.run import profile
from .report.atlas.page import write_report

__version__: str

__all__ = [
    "Head",
    "HeadTable",
    "InterpError",
    "Model",
    "Prompts",
    "Result",
    "ablate",
    "alignment",
    "attribute",
    "attribution",
    "bundled",
    "cache",
    "causal",
    "circuits",
    "compare",
    "confirm",
    "core",
    "detector",
    "dictionaries",
    "faithfulness",
    "find_circuit",
    "heads",
    "judge",
    "lens",
    "load",
    "model",
    "planted",
    "policies",
    "probes",
    "profile",
    "profiles",
    "record_activations",
    "repeats",
    "repeats_task",
    "report",
    "roles",
    "safety",
    "score",
    "shapley",
    "syntax",
    "testing",
    "text",
    "view",
    "vision",
    "write_report",
    "zero",
]
