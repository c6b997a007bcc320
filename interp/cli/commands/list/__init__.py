"""List metrics, attribution methods or bundled models, or explain one."""

GROUP = "Models and shell"
