# SPDX-License-Identifier: Apache-2.0
"""Profiles shaped like DVABatch's benchmarks, derived and not measured, and searches over them."""
import functools
import random

BATCHES = [1, 2, 4, 8, 16, 32, 64]
BUCKETS = [16, 32, 48, 64, 96, 128, 192, 256, 320]
SLO = 200
WINDOW = "delay-batch:5"
# Of each stage its time at batch 1 in ms and its preferred batch: flat up to that, in proportion beyond. The paper prints
# no tables: preferred batches follow its text (of U-Net early operators above 32, late ones below 8), times are of the
# order of a Titan RTX's. Of the BERTs the time, and how many tokens fill the device.
CNNS = {"unet": ([1.5, 1.5, 1.6, 1.6], [40, 32, 6, 4]), "linknet": ([0.8] * 4, [48, 40, 32, 6]),
        "vgg19": ([0.8] * 4, [8] * 4),
        "resnet152": ([2.0] * 4, [12] * 4)}
BERTS = {"bert_base": ([2.2, 2.2], 1024), "bert_large": ([6.0, 6.0], 640)}
MODELS = [*CNNS, *BERTS]
SHOWN = {"unet": "U-Net", "linknet": "LinkNet", "vgg19": "VGG19", "resnet152": "ResNet152", "bert_base": "BERT-base",
         "bert_large": "BERT-large"}


def model(name, stages=None, **more):
    """MODEL.json; with `stages` its work is cut into so many equal parts of its time at batch 1."""
    times, prefer = (CNNS | BERTS)[name]
    total, out = sum(times), []
    count = stages or len(times)
    for i in range(count):
        # What this stage has of each part of the model.
        low, high, at, parts = total * i / count, total * (i + 1) / count, 0.0, []
        for k, t in enumerate(times):
            parts.append((max(0.0, min(high, at + t) - max(low, at)), k))
            at += t
        if name in CNNS:
            rows = [{"batch": b, "ms": round(sum(t * max(1, b / prefer[k]) for t, k in parts), 6)} for b in BATCHES]
        else:
            rows = [{"batch": b, "size": n, "ms": round(sum(t for t, _ in parts) * max(1, b * n / prefer), 6),
                     "share": round(min(1, b * n / prefer), 6)} for b in BATCHES for n in BUCKETS]
        out.append({"name": f"s{i + 1}", "latency": rows})
    m = {"name": name, "batch_max": 64, "slo_ms": SLO, "buffer_sets": 2, "stages": out, **more}
    return m if name in CNNS else {**m, "parallel": True, "sizes": {"buckets": BUCKETS}}


@functools.cache
def lengths(spread=0.55):
    """Lengths of 30 000 requests, shaped like those of RTE: log-normal about 55, 10 to 289."""
    draw = random.Random(1)
    return "size\n" + "".join(f"{min(289, max(10, round(draw.lognormvariate(4.0, spread))))}\n" for _ in range(30000))


def serve(run, m, policy, rate, size, seed=1, spread=0.55, options=()):
    options = [*options, *(["--lengths", run.file(lengths(spread), ".csv")] if m["name"] in BERTS else [])]
    return run("cohort", "pipeline", "-", "--policy", policy, "--rate", rate, "--requests", size.pick(2000, 30000),
               "--seed", seed, *options, "--json",
               input=m)


def seeds(size):
    return range(1, size.pick(1, 3, 5) + 1)


def means(run, m, policy, rate, size, **more):
    runs = [serve(run, m, policy, rate, size, s, **more) for s in seeds(size)]
    return {k: sum(r[k] for r in runs) / len(runs) for k in ("mean_ms", "p99_ms")}


def peak(run, m, policy, size, **more):
    """Highest Poisson rate at which 99 % are within 200 ms with each seed, to 1 %."""
    met = lambda rate: all(serve(run, m, policy, round(rate, 1), size, s, **more)["p99_ms"] <= SLO for s in seeds(size))
    largest = m["stages"][0]["latency"][-1]["batch"]
    rate = 1000 * largest / sum(s["latency"][-1]["ms"] for s in m["stages"])
    factor = size.pick(2, 1.25)
    if met(rate):
        while rate < 1e6 and met(rate * factor):
            rate *= factor
        low, high = rate, rate * factor
    else:
        while not met(rate / factor):
            rate /= factor
        low, high = rate / factor, rate
    while high / low > size.pick(1.7, 1.01, 1.005):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if met(middle) else (low, middle)
    return round(low, 1)
