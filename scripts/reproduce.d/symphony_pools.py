# SPDX-License-Identifier: Apache-2.0
"""Symphony: figures of large pools, networks and sub-clusters (13 to 16)."""
import math
import pathlib
import random
import re

import plots
from pages import image, number, percent, table
from runner import Bar, Experiment, Job, Section
from workloads import RESNET, copies, goodput, models_of, workload

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


# Fig. 13, right -----------------------------------------------------------------------------------------------------

def fig13_plan(size):
    return {f"{n}/{p}": Job(lambda run, n=n, p=p: goodput(
        run, workload(n, copies(RESNET, 20, 100), duration=size.pick(1, 5, 20)), p, precision=size.pick(0.2, 0.01),
        seeds=size.pick(1, 1, 3))["goodput_rps"], n / 50)
        for n in size.pick([8, 16], [8, 16, 32, 64, 128, 256], [8, 16, 32, 64, 128, 256, 512])
            for p in ("deferred", "clockwork")}


def fig13_report(answers, size):
    devices = sorted({int(k.split("/")[0]) for k in answers})
    good = {n: answers[f"{n}/deferred"] for n in devices}
    per = {n: good[n] / n for n in devices}
    rows = [[n, number(good[n], 4), number(per[n], 4), number(answers[f"{n}/clockwork"], 4)] for n in devices]
    even = per[devices[-1]] / per[32 if 32 in per else devices[0]]
    body = "\n\n".join([
        "20 equally popular models like ResNet50, SLO 100 ms.",
        table(["devices", "deferred, r/s", "for each device", "clockwork, r/s"], rows),
        image("Goodput over devices", "symphony-fig13"),
        "The paper, of a plot: Symphony grows linearly, Clockwork stops where locks bind it. Here no rule takes "
        f"time, so Clockwork grows as well. At {devices[-1]} devices each brings {even:.2f} times what it does at "
        f"{32 if 32 in per else devices[0]}. Few devices bring less each: 20 models wait for their turn."])
    bars = [Bar("Fig. 13: goodput for each device at the most devices is no less than at 32 (0.97 times)",
                f"{even:.3f}", even >= 0.97)]
    svg = plots.lines("Fig. 13, right: goodput over devices", "devices", "r/s", {
        p: [(n, answers[f"{n}/{p}"]) for n in devices] for p in ("deferred", "clockwork")}, log_x=False,
                      x_values=devices)
    return Section(answers, body, {"symphony-fig13": svg}, bars if size.name != "smoke" else [])


# Fig. 14 ------------------------------------------------------------------------------------------------------------

RDMA_US = [0, 10, 24, 33, 50, 100]
TCP_US = [0, 1000, 3034, 5000, 7500, 10000, 12000]
SLOS = [20, 25, 50, 100]


def fig14_plan(size):
    def work(run, slo, us):
        if RESNET["alpha_ms"] + RESNET["beta_ms"] + us / 1000 > slo:
            return None
        w = workload(32, copies(RESNET, 20, slo), duration=size.pick(1, 10, 20),
                     network={"control_us": us, "data_us_per_request": 0})
        return goodput(run, w, "deferred", precision=size.pick(0.2, 0.004), seeds=size.pick(1, 1, 3))["goodput_rps"]
    return {f"{slo}/{us}": Job(lambda run, slo=slo, us=us: work(run, slo, us), 1.1)
            for slo in size.pick([20], SLOS) for us in size.pick([0, 3034], sorted({*RDMA_US, *TCP_US}))}


def fig14_report(answers, size):
    slos = [s for s in SLOS if f"{s}/0" in answers]
    part = lambda slo, us: (answers.get(f"{slo}/{us}") or 0) / answers[f"{slo}/0"]
    shown = {"left": [u for u in RDMA_US if f"{slos[0]}/{u}" in answers],
             "right": [u for u in TCP_US if f"{slos[0]}/{u}" in answers]}
    rows = [[f"{us} µs", *(percent(part(s, us)) for s in slos)] for us in sorted({*shown["left"], *shown["right"]})]
    images = {f"symphony-fig14-{side}": plots.lines(
        f"Fig. 14, {side}: goodput over latency of the network", "µs from scheduler to data",
        "goodput, % of that without", {f"SLO {s} ms": [(us, 100 * part(s, us)) for us in shown[side]] for s in slos},
        y_range=(0, 105)) for side in shown}
    left = min(part(s, u) for s in slos for u in shown["left"] if u <= 33)
    right = {s: part(s, shown["right"][-1]) for s in slos}
    body = "\n\n".join([
        "20 models like ResNet50 on 32 devices; goodput in percent of that without a network. The latency is what a "
        "batch waits from its decision until its data is there (`network.control_us`), which the scheduler knows and "
        "allows for.",
        table(["latency", *(f"SLO {s} ms" for s in slos)], rows),
        *(image(f"Goodput over latency, {side}", f"symphony-fig14-{side}") for side in shown),
        f"The paper measured 24 to 33 µs over RDMA, which cost next to nothing: ours at least {percent(left)}. Over "
        "TCP, 3034 µs at the median and 12 times that in the tail, up to 70 % was lost, most with short SLOs: ours "
        f"at {shown['right'][-1]} µs "
        + ", ".join(f"{percent(1 - x, 0)} lost with {s} ms" for s, x in right.items())
        + ". With the tail's 36 ms an SLO of 25 ms cannot be met at all."])
    bars = [Bar("Fig. 14: at least 98 % of the goodput up to 33 µs", percent(left), left >= 0.98),
            Bar("Fig. 14: the shorter the SLO, the more is lost", ", ".join(percent(1 - x, 0) for x in right.values()),
                list(right.values()) == sorted(right.values()))]
    return Section(answers, body, images, bars if size.name != "smoke" else [])


# Fig. 15 ------------------------------------------------------------------------------------------------------------

POOL = {"smoke": 16, "usual": 512, "full": 512}
# Two waves, the second beyond what the pool can do: (part of the time, part of the pool's goodput).
WAVES = [(0, 0.3), (0.15, 0.45), (0.3, 0.7), (0.4, 0.5), (0.5, 0.3), (0.6, 0.6), (0.7, 0.9), (0.78, 1.15), (0.85, 1.0),
         (0.93, 0.5), (1, 0.35)]
STEPS = 36


def wave(at):
    """The load at a part of the time, on the line between the two points beside it."""
    (x0, y0), (x1, y1) = next((p, q) for p, q in zip(WAVES, WAVES[1:]) if p[0] <= at <= q[0])
    return y0 + (y1 - y0) * (at - x0) / (x1 - x0)


def fig15_rate(run, size):
    """24 models of unlike curves and SLOs, and the pool's goodput of them."""
    zoo = models_of(run, "1080ti")
    models = [*zoo[::2], *zoo[1::6]][:24]
    found = goodput(run, workload(POOL[size.name], models, duration=size.pick(1, 5), warmup=1), "deferred",
                    precision=size.pick(0.2, 0.02), seeds=1)
    return models, round(found["goodput_rps"])


def fig15_plan(size):
    def step(run, i):
        models, rate = fig15_rate(run, size)
        rate = round(rate * wave(i / (STEPS - 1)))
        a = run("cohort", "simulate", "-", "--policy", "deferred", "--rate", rate, "--json",
                input=workload(POOL[size.name], models, duration=size.pick(1, 5), warmup=1))
        return {"rate": rate, "in_time": a["throughput_rps"], "bad": a["bad_rate"], "used": a["devices_used"],
                "busy": a["busy_fraction"],
                "advice": a["autoscale"]["advice_devices"]}

    def follow(run):
        models, rate = fig15_rate(run, size)
        pool, length = POOL[size.name], size.pick(60, 1800)
        load = "time_s,part\n" + "".join(f"{x * length:.1f},{y}\n" for x, y in WAVES)
        return run("cohort", "autoscale", "-", "--policy", "deferred", "--rate", rate, "--load", run.file(load, ".csv"),
                   "--devices", pool,
                   "--limit", pool, "--delay-s", 20, "--duration-s", length, "--least", "off", "--json",
                   input=workload(pool, models, warmup=10))
    shown = range(STEPS) if size.name != "smoke" else (0, 20)
    return {**{f"step/{i}": Job(lambda run, i=i: step(run, i), 0.3) for i in shown},
            "follow": Job(follow, size.pick(3, 40)),
            "rate": Job(lambda run: fig15_rate(run, size)[1], 2)}


def fig15_report(answers, size):
    pool, rate, follow = POOL[size.name], answers["rate"], answers["follow"]
    steps = [(int(k.split("/")[1]), a) for k, a in answers.items() if k.startswith("step")]
    course = {"offered": [(i, a["rate"]) for i, a in steps], "in time": [(i, a["in_time"]) for i, a in steps]}
    devices = {"busy": [(i, pool * a["busy"]) for i, a in steps], "used": [(i, a["used"]) for i, a in steps],
               "advice": [(i, a["advice"]) for i, a in steps]}
    over = [a for _, a in steps if a["rate"] > rate]
    within = [a for _, a in steps if a["rate"] <= 0.97 * rate]
    worst = max(a["bad"] for a in within)
    windows = follow["windows"]
    spare = [w["bad_rate"] for w in windows if w["asked"] < pool and w["devices"] < pool]
    rows = [["steps within the pool's goodput: bad at most", percent(worst, 2)],
            ["busy devices there", f"{pool * min(a['busy'] for a in within):.0f} to "
                                   f"{pool * max(a['busy'] for a in within):.0f} of {pool}"],
            ["advice there", f"{min(a['advice'] for a in within):+d} to {max(a['advice'] for a in within):+d} devices"],
            ["steps beyond it: bad", ", ".join(percent(a["bad"]) for a in over) or "none"],
            ["advice there", ", ".join(f"{a['advice']:+d}" for a in over) or "none"],
            ["when the advice is taken: devices in service", f"{follow['fewest_devices']} to {follow['most_devices']}"],
            ["bad, of all", percent(follow["bad_rate"], 2)],
            [f"bad, mean of the {len(spare)} windows with devices to spare", percent(sum(spare) / len(spare), 2)
             if spare else "none"]]
    body = "\n\n".join([
        f"24 models of the 1080Ti's table on {pool} devices, as many r/s of each. The paper's rates are of 150 hours "
        "of video, which are not published: here the load is two drawn waves, the second up to 1.15 times what the "
        f"pool can serve, {number(rate)} r/s. {STEPS} steps of constant load, 5 s each, are simulated with all "
        "devices there, as in the paper; and the course as a whole, in half an hour, with devices that come (20 s "
        "after they are asked for) and go as advised.",
        table(["", "ours"], rows), image("Requests, step by step", "symphony-fig15-rate"),
        image("Devices, step by step", "symphony-fig15-devices"),
        image("Bad requests, step by step", "symphony-fig15-bad"),
                        image("Devices that follow the advice", "symphony-fig15-follow"),
        "The paper, of plots: devices in use follow the load, the advice is to release or to add, and few requests "
        "are bad unless the pool is overloaded. So here in steps. Where the advice is taken, requests are lost while "
        "the load rises faster than devices come, which the paper's cluster, with all 512 there, did not try."])
    bars = [Bar("Fig. 15: at most 1 % bad at any step up to 0.97 of the pool's goodput", percent(worst, 2),
                worst <= 0.01),
            Bar("Fig. 15: beyond it at least one device is asked for, at a third of it some are released",
                ", ".join(f"{a['advice']:+d}" for a in [*over, steps[0][1]]),
                all(a["advice"] > 0 for a in over) and steps[0][1]["advice"] < 0)]
    follows = {"serving": [(w["end_s"], w["devices"]) for w in windows],
               "asked for": [(w["end_s"], w["asked"]) for w in windows],
               "busy": [(w["end_s"], w["devices"] * (1 - w["idle_fraction"])) for w in windows]}
    return Section({"rate_rps": rate, "steps": [a for _, a in steps],
                    "follow": {k: follow[k] for k in ("bad_rate", "fewest_devices", "most_devices")}}, body,
                   {"symphony-fig15-rate": plots.lines("Fig. 15: requests", "step", "r/s", course, marks=False),
                    "symphony-fig15-devices": plots.lines("Fig. 15: devices, and advice", "step", "devices", devices,
                                                          marks=False),
                    "symphony-fig15-bad": plots.lines("Fig. 15: bad requests", "step", "%",
                                                      {"bad": [(i, 100 * a["bad"]) for i, a in steps]}, marks=False),
                    "symphony-fig15-follow": plots.lines("Fig. 15: the advice taken", "s", "devices", follows,
                                                         marks=False)},
                   bars if size.name != "smoke" else [])


# Fig. 16 ------------------------------------------------------------------------------------------------------------

def weights_mb():
    """Of the zoo's models, where the bench that packs sub-clusters has them."""
    text = (ROOT / "bench/packing/zoo_weights.hpp").read_text()
    return [float(x) for x in re.findall(r"[\d.]+", text[text.index("zoo_weights_mb{"):].split("{")[1].split("}")[0])]


def random_partition(models, clusters, draw, tries):
    """The paper's baseline: of so many partitions drawn at random the one with the least objective."""
    best = None
    for _ in range(tries):
        rate, memory = [0.0] * clusters, [0.0] * clusters
        for r, m in models:
            i = int(draw.random() * clusters)
            rate[i] += r
            memory[i] += m
        imbalance = [(max(v) - min(v)) / (sum(v) / clusters) for v in (rate, memory)]
        objective = sum(max(abs(x - sum(v) / clusters) for x in v) / (sum(v) / clusters) for v in (rate, memory))
        if best is None or objective < best[0]:
            best = (objective, *imbalance)
    return best[1:]


def fig16_plan(size):
    weights = weights_mb()

    def work(run, seed):
        draw = random.Random(seed)
        models = [(draw.expovariate(1 / 100), draw.choice(weights)) for _ in range(size.pick(100, 800))]
        clusters = size.pick(5, 20)
        rows = "".join(f"m{i},{r:.4f},{m},0\n" for i, (r, m) in enumerate(models))
        text = "name,rate_rps,static_mb,dynamic_mb\n" + rows
        a = run("cohort", "subclusters", run.file(text, ".csv"), "--count", clusters, "--memory-mb", 10 ** 6,
                "--rate-cap", 10 ** 6, "--time-limit-s", size.pick(0.1, 10), "--json")
        rate, memory = random_partition(models, clusters, draw, size.pick(20, 2000))
        return {"ours": a["imbalance"], "random": {"rate": rate, "memory": memory}}
    return {str(s): Job(lambda run, s=s: work(run, s), size.pick(0.2, 13)) for s in range(1, size.pick(2, 16, 100) + 1)}


def fig16_report(answers, size):
    values = {f"{what}, {who}": [100 * a[who if who != "search" else "ours"][what] for a in answers.values()]
              for what in ("rate", "memory") for who in ("search", "random")}
    rows = [[n, number(min(v)), number(sorted(v)[len(v) // 2]), number(max(v))] for n, v in values.items()]
    worst = max(max(values["rate, search"]), max(values["memory, search"]))
    least = min(min(values["rate, random"]), min(values["memory, random"]))
    body = "\n\n".join([
        f"{len(answers)} draws of 800 models on 20 sub-clusters, exponential rates, weights of the zoo's models; 10 s "
        "of search as in the paper. The baseline is the best of 2000 random partitions rather than of 10 s of them. "
        "Imbalance is (max − min) / mean, in percent.",
        table(["imbalance, %", "least", "median", "most"], rows), image("Imbalance over all draws", "symphony-fig16"),
        "The paper's integer program (CPLEX, cut after 10 s) is shown as a plot only: even, and far better than "
        "random. Here it is a search, `cohort subclusters`; what it finds in 10 s varies with the machine."])
    bars = [Bar("Fig. 16: the worst imbalance found is below the least random one", f"{worst:.3g} % of {least:.3g} %",
                worst < least)]
    # A logarithm: on one scale with random the search would be a line at 0.
    least = math.floor(math.log10(max(1e-4, min(map(min, values.values())))))
    most = math.ceil(math.log10(max(map(max, values.values()))))
    svg = plots.lines("Fig. 16: imbalance of sub-clusters", "imbalance, % (logarithmic)", "draws with at most this, %",
                      {n: plots.share_below([max(x, 1e-4) for x in v]) for n, v in values.items()}, log_x=True,
                      steps=True, marks=False, x_range=(10.0 ** least, 10.0 ** most), y_range=(0, 100),
                      x_values=[10.0 ** e for e in range(least, most + 1)])
    return Section(values, body, {"symphony-fig16": svg}, bars if size.name != "smoke" else [])


EXPERIMENTS = [
    Experiment("symphony.fig13", "Fig. 13, right: goodput over devices", fig13_plan, fig13_report),
    Experiment("symphony.fig14", "Fig. 14: latency of the network", fig14_plan, fig14_report),
    Experiment("symphony.fig15", "Fig. 15: a changing load on a large pool", fig15_plan, fig15_report),
    Experiment("symphony.fig16", "Fig. 16: sub-clusters", fig16_plan, fig16_report),
]
