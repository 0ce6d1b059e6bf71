# SPDX-License-Identifier: Apache-2.0
"""Workloads of Symphony's evaluation, and searches over them."""

RESNET = {"name": "ResNet50", "alpha_ms": 1.053, "beta_ms": 5.072, "slo_ms": 25}  # Of Table 2.
SYSTEMS = {"Symphony": "deferred", "Clockwork": "clockwork", "Nexus": "nexus", "Shepherd": "shepherd"}


def copies(m, count, slo_ms):
    return [{**m, "name": f"{m['name']}-{i + 1}", "slo_ms": slo_ms} for i in range(count)]


def workload(devices, models, duration=20, warmup=2, **more):
    return {"devices": devices, "models": models, "popularity": "equal", "warmup_s": min(warmup, duration),
            "duration_s": duration, **more}


def models_of(run, zoo, *options):
    return run("cohort", "workload", "--zoo", zoo, "--devices", 1, *options)["models"]


def goodput(run, w, policy, precision=0.01, seeds=3, gather=None):
    """The highest rate that is met, and by which gather rule; a rate of None where none is."""
    found = run("cohort", "goodput", "-", "--policy", policy, "--precision", precision, "--seeds", seeds, "--json",
                *(["--gather", gather] if gather else []), input=w, negative=True)["goodput"][0]
    return {"goodput_rps": found["goodput_rps"], "gather": found["gather"]}


# The paper does not say which gather rule its comparisons of section 3.4 have; a policy without a choice is asked once.
GATHERS = ["drop-head", "head"]


def by_gather(run, w, policy, **how):
    """Goodput by gather rule: 0 where no rate is met."""
    return {g: goodput(run, w, policy, gather=g, **how)["goodput_rps"] or 0 for g in GATHERS}


def over(a, b):
    """a's goodput over b's by rule: the same rule for both, and each by its better one."""
    ratio = lambda x, y: x / y if y else None
    return {**{g: ratio(a[g], b[g]) for g in GATHERS}, "best": ratio(max(a.values()), max(b.values()))}
