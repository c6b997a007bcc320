"""One example per result class of `interp.vision`, by its full name."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import torch

import interp
from interp import vision
from interp.bundled.shape_images import ShapeImages, shape_images
from interp.core.result import Result
from interp.core.result_rows import ResultRows
from interp.planted.with_picture import image_text
from interp.vision import language


@functools.cache
def pictures() -> tuple:
    planted = image_text()
    return interp.load(planted.model, name="picture"), *planted.prompts(4)


def grounded() -> ResultRows:
    return language.grounding_heads(*pictures(), n_heads=2)


def gazing() -> ResultRows:
    return language.gaze_heads(*pictures()[:2], [0, 1, 0, 1], n_panels=2)


def dropped_tokens() -> ResultRows:
    return language.drop_tokens(*pictures(), drop=[0.5, 0.75], n_random=1)


def chosen_schedule() -> ResultRows:
    return language.pruning_schedule(*pictures(), n_random=2)


def visual_sinks_found() -> ResultRows:
    return language.visual_sinks(*pictures()[:2])


@functools.cache
def shapes() -> interp.Model:
    return interp.load("bundled:shapes-spurious")


@functools.cache
def drawn_shapes() -> ShapeImages:
    return shape_images(3, 16, aligned=0.5)


def query_maps() -> ResultRows:
    torch.manual_seed(0)
    decoder, tokens = vision.ClassQueries(2, 8, 2), torch.randn(2, 4, 8)
    return vision.query_maps(decoder, tokens, (2, 2), ("a", "b"), torch.rand(2, 3, 8, 8))


VISION_EXAMPLES: dict[str, Callable[[], Result]] = {
    "GazeHeads": gazing,
    "GroundingHeads": grounded,
    "ImageTokenEffects": dropped_tokens,
    "PruningSchedule": chosen_schedule,
    "VisualSinks": visual_sinks_found,
    "QueryMaps": query_maps,
    "CorrectedAccuracy": lambda: vision.correct_spurious_heads(
        shapes(), drawn_shapes(), drawn_shapes().labels, drawn_shapes().cues, ["L2H1"], n_random=2
    ),
    "HeadDescriptions": lambda: vision.describe_heads(
        shapes(),
        drawn_shapes(),
        np.eye(4),
        list("abcd"),
        heads=["L2H0", "L2H1"],
        ranks=2,
        n_random=2,
    ),
    "ImageMaps": lambda: vision.image_maps(shapes(), drawn_shapes()),
    "interp.vision.result.ImageScores": lambda: vision.image_direct_effects(
        shapes(), drawn_shapes(), drawn_shapes().labels
    ),
    "interp.vision.spurious.SpuriousVotes": lambda: vision.locate_spurious_heads(
        shapes(), drawn_shapes(), drawn_shapes().labels, drawn_shapes().cues, n_permutations=9
    ),
}
