"""Settings of every test process, made before torch starts its threads, and the shared fixtures."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# The test command starts several processes. With torch's default of one thread per core in each,
# the threads wait for each other and the suite is several times slower. torch reads these
# variables when it is first imported; worker processes inherit them from the first process.
os.environ |= {
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",  # no test may reach a network
}

# A busy machine makes an example slow, and says nothing about the code under test.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

# Fixtures that several files use, one module per subject. A fixture of one file stays in its file;
# a name is defined once (tests/house/test_fixtures.py).
pytest_plugins = [
    "fixtures.commands",
    "fixtures.models",
    "fixtures.kernels",
    "fixtures.pictures",
    "fixtures.surroundings",
]
