"""Invalid options of methods are refused when the method is created."""

from typing import Any

import pytest

from ergnn.config.errors import InputError
from ergnn.methods import METHODS
from ergnn.replay.selectors.baselines import Random


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("agem", {"sample": 0}, "sample is 0"),
        ("cat", {"steps": -1}, "steps is -1"),
        ("continualgnn", {"lam": -1.0}, "lam is -1"),
        ("derpp", {"beta": -1.0}, "beta is -1"),
        ("ewc", {"fisher_samples": 0}, "fisher_samples is 0"),
        ("gem", {"margin": -1.0}, "margin is -1"),
        ("lwf", {"temperature": 0.0}, "temperature is 0"),
        ("mas", {"samples": 0}, "samples is 0"),
        ("nearest-mean", {"distance": "manhattan"}, "distance 'manhattan'"),
        ("online-ewc", {"gamma": 1.5}, "gamma is 1.5; it must be 0 to 1"),
        ("packnet", {"prune": 1.0}, "prune is 1.0; it must lie between 0 and 1"),
        ("pdgnn-tem", {"hops": -1}, "hops is -1"),
        ("piggyback", {"init": 0.4}, "threshold is 0.5 and init is 0.4; 0 <= threshold < init"),
        *(("replay", {o: 0}, f"{o} is 0; it must be 1 or more") for o in ("per_class", "budget_nodes", "budget_bytes")),
        *(("replay", {"beta": beta}, f"beta is {beta}; it must lie between 0 and 1") for beta in (0.0, 1.0, -0.1)),
        ("replay", {"loss_scale": "median"}, "choose one of: balanced, mean, sum"),
        ("replay", {"class_balance": "fair"}, "unknown class_balance 'fair'"),
        ("replay", {"scarce": "drop"}, "unknown scarce 'drop'"),
        ("replay", {"replay_batch": -1}, "replay_batch is -1"),
        ("replay", {"replay": "dream"}, "choose one of: ego, isolated, live"),
        ("replay", {"hops": 0}, "hops is 0"),
        ("replay", {"selector": Random(), "selector_options": {"d": 1.0}}, "this selector is an instance"),
        ("analytic", {"lam": 0.0}, "lam is 0"),
        ("analytic", {"memory": "rows"}, "memory"),
        ("analytic", {"per_class": 0}, "per_class is 0"),
        ("analytic", {"kernel": "cubic"}, "kernel"),
        ("analytic", {"kernel": "rbf", "memory": "statistics"}, "kernel is 'rbf'"),
        ("analytic", {"sketch": "big"}, "sketch is 'big'"),
        ("analytic", {"sketch": 0}, "sketch is 0"),
        ("analytic", {"feature_map": "walks"}, "feature map"),
        ("analytic", {"feature_map": "ppr", "map_options": {"alpha": 2.0}}, "alpha is 2"),
        ("si", {"xi": 0.0}, "xi is 0.0; it must be above 0"),
        ("slda", {"shrinkage": 0.0}, "shrinkage is 0"),
        ("ssm", {"neighbors": -1}, "neighbors is -1"),
        ("tpp", {"prompts": -1}, "prompts is -1"),
        ("twp", {"lam_topology": -1.0}, "lam_topology is -1"),
    ],
)
def test_invalid_options_are_refused(method: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        METHODS.create(method, **options)
