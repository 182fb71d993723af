"""The learner that a folder's settings describe, and how far it sees."""

from __future__ import annotations

import torch
from torch import nn

from ergnn.engine.layers import Propagate
from ergnn.errors import InputError
from ergnn.folder.settings import Settings
from ergnn.learner import Learner
from ergnn.nn.backbones import BACKBONES, Backbone


def make_learner(settings: Settings) -> Learner:
    """A learner that has learnt nothing yet."""
    backbone = BACKBONES.get(settings.backbone)
    try:
        return Learner(
            settings.backbone,
            "replay",
            head="growing",
            epochs=settings.epochs,
            lr=settings.lr,
            weight_decay=backbone.weight_decay if settings.weight_decay is None else settings.weight_decay,
            optimizer=settings.optimizer,
            batch_size=settings.batch_size,
            seed=settings.seed,
            backbone_options=settings.backbone_options,
            selector=settings.selector,
            selector_options=settings.selector_options,
            per_class=settings.per_class,
            replay_batch=settings.replay_batch,
            loss_scale=settings.loss_scale,
            scarce="keep",
        )
    except TypeError as error:
        raise InputError(f"the settings do not fit: {error}") from None


def hops_of(settings: Settings) -> int:
    """How far a node sees: the layers that look at neighbours."""
    model = _layers(settings, 2)
    if not isinstance(model, Backbone) or not model.runs_on_fields:
        raise InputError(
            f"backbone {settings.backbone!r} does not run on receptive fields; a folder's graph is read in parts"
        )
    layers = [*model.convs, *model.heads[:1]]
    return sum(layer.hops if isinstance(layer, Propagate) else not isinstance(layer, nn.Linear) for layer in layers)


def check_size(settings: Settings, num_features: int) -> None:
    """Refuse a model that is larger than files may be, before it is made."""
    count = sum(value.numel() for value in _layers(settings, num_features).parameters())
    settings.limits.check_bytes(4 * count, f"backbone {settings.backbone!r}", "parameters take")


def _layers(settings: Settings, num_features: int) -> nn.Module:
    """The model without its numbers."""
    try:
        with torch.device("meta"):
            return BACKBONES.create(
                settings.backbone, in_channels=num_features, out_channels=2, **settings.backbone_options
            )
    except (RuntimeError, TypeError, ValueError, OverflowError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"backbone {settings.backbone!r} cannot be made with these options: {error}") from None


def reach_of(settings: Settings, learner: Learner) -> int:
    """How far training sees: the model, or a selector that averages over more hops."""
    return max(hops_of(settings), int(getattr(getattr(learner.method, "selector", None), "hops", 0)))
