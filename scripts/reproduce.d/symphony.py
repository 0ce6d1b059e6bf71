# SPDX-License-Identifier: Apache-2.0
"""Symphony: its page, and the figures of one pool; the others are in symphony_mixes.py and symphony_pools.py."""
import math
import random

import plots
import symphony_mixes
import symphony_pools
from pages import image, number, off, percent, table
from runner import Bar, Experiment, Job, Section
from workloads import RESNET, SYSTEMS, by_gather, copies, goodput, models_of, over, workload

TITLE = "Symphony, reproduced in virtual time"
INTRO = """
Every table and figure of Symphony's evaluation (sections 2, 3.4, 5 and appendix A) that needs no cluster, by the
command `cohort`. The paper's systems are its rules as `cohort` has them: `deferred` is Symphony's Algorithm 1,
`eager` and `timeout:F` its variants of line 5, and [`clockwork`, `shepherd` and `nexus`](../sim/rivals.md) what the
papers say of theirs; `adaptive`, what servers of cohort do by default, is beside them where it is cheap. Here nothing
takes time but batches: no network, no engine, no scheduler's own computing, unless said. The paper prints few
numbers: where a figure is only a plot, ours is held against what its text says of it.
"""
MISSING = [
    ["Fig. 3, 4, 8, 18", "drawings of the design. Fig. 4's schedule is what `deferred` does in Fig. 5's first part, "
                         "and a test of the command"],
    ["Fig. 9, end-to-end (e), and Nexus with one or eight frontends",
     "need a cluster: what differs is the network between machines"],
    ["Fig. 13, left: requests a second over threads",
     "a scheduler on 1 to 32 cores, in real time: one core is `build/release/bench/deferred.scheduler_bench`, "
     "[bench/README.md](../../bench/README.md); two are in [scale.md](scale.md)"],
    ["Fig. 17", "a network measured: InfiniBand and Ethernet between eight servers"],
    ["Tables 1, 3, 4", "input: Table 1 of Fig. 7 here, 3 and 4 are `cohort workload --zoo 1080ti` and `a100`"],
    ["the 150 hours of video behind Fig. 15", "not published; the load of Fig. 15 here is drawn, and says so"],
]

INCEPTION = {"name": "InceptionResNetV2", "alpha_ms": 5.090, "beta_ms": 18.368, "slo_ms": 70}
# Table 2: goodput measured on the cluster; Fig. 1: median batch sizes, by section 2.2.
PAPER_GOODPUT = {"ResNet50": {"Symphony": 5264, "Clockwork": 1358, "Nexus": 4027, "Shepherd": 4445},
                 "InceptionResNetV2": {"Symphony": 926, "Clockwork": 458, "Nexus": 618, "Shepherd": 778}}
PAPER_MEDIAN = {"ResNet50": {"Clockwork": 1, "Nexus": 6, "Shepherd": 9, "Symphony": 14},
                "InceptionResNetV2": {"Clockwork": 1, "Nexus": 2, "Shepherd": 4, "Symphony": 8}}
PAIR = [RESNET, INCEPTION]


# Table 2 ------------------------------------------------------------------------------------------------------------

def table2_plan(size):
    return {f"{m['name']}/{name}": Job(lambda run, m=m, p=policy: goodput(
        run, workload(8, [m], duration=size.pick(1, 20)), p, precision=size.pick(0.1, 0.004), seeds=size.pick(1, 3)), 2)
        for m in PAIR for name, policy in {**SYSTEMS, "adaptive": "adaptive"}.items()}


def staggered(m, devices):
    """Batch and rate without coordination, and staggered: section 5.3."""
    out = []
    for part in (2, 1 + 1 / devices):
        b = math.floor((m["slo_ms"] / part - m["beta_ms"]) / m["alpha_ms"])
        out += [b, 1000 * devices * b / (m["alpha_ms"] * b + m["beta_ms"])]
    return out


def table2_report(answers, size):
    rows, bars, data = [], [], {}
    printed = {"ResNet50": [7, 4501, 16, 5839], "InceptionResNetV2": [3, 713, 8, 1083]}
    for m in PAIR:
        name = m["name"]
        b1, r1, b2, r2 = staggered(m, 8)
        for what, ours, paper in (("batch, no coordination", b1, printed[name][0]),
                                  ("r/s, no coordination", r1, printed[name][1]),
                                  ("batch, staggered", b2, printed[name][2]), ("r/s, staggered", r2, printed[name][3])):
            rows.append([f"{name}: {what}, by formula", paper, number(ours, 4), off(ours, paper)])
        for system in (*SYSTEMS, "adaptive"):
            ours, paper = answers[f"{name}/{system}"]["goodput_rps"], PAPER_GOODPUT[name].get(system)
            data[f"{name}/{system}"] = ours
            rows.append([f"{name}: goodput of {system}, r/s", paper or "", number(ours, 4), off(ours, paper)])
        ours, paper = data[f"{name}/Symphony"], PAPER_GOODPUT[name]["Symphony"]
        bars.append(Bar(f"Table 2: deferred's goodput on {name} within 5 % of Symphony's", off(ours, paper),
                        abs(ours / paper - 1) <= 0.05))
    body = f"""8 devices, one model, Poisson arrivals; at most 1 % bad.

{table(["", "paper", "ours", "difference"], rows)}

The order of the systems is the paper's. Symphony comes out a little higher than on the cluster, where networks
and engines take time; Shepherd and Nexus gain more, since their planners are replaced by [what is kindest to
them](../sim/rivals.md). How far ahead Clockwork commits is not stated: `clockwork` does so at arrival, when
batches are of one; [others](../sim/rivals.md#beside-the-published-figures) come out higher."""
    return Section(data, body, {}, bars if size.name != "smoke" else [])


# Fig. 1 and 12: one run each at the goodput of Table 2 -------------------------------------------------------------

def poisson_trace(model, rate, seconds, seed):
    draw, now, out = random.Random(seed), 0.0, []
    while (now := now + draw.expovariate(rate / 1000)) < seconds * 1000:
        out.append(round(now, 4))
    return out


def batches_and_queueing(run, m, system, size):
    """Sizes of batches, and how long requests waited for their batch, at the system's own goodput."""
    seconds = size.pick(1, 20)
    found = table2_plan(size)[f"{m['name']}/{system}"].work(run)["goodput_rps"]
    times = poisson_trace(m, found, seconds, 1)
    name = run.file("time_ms,model\n" + "".join(f"{t},{m['name']}\n" for t in times), ".csv")
    w = workload(8, [m], duration=seconds, warmup=0)
    w["arrivals"] = {"process": "trace", "file": name}

    def kept(answer):  # Of a hundred thousand requests only the shape.
        batches = answer["dispatches"]
        waited = sorted(round(d["exec_ms"] - times[r - 1], 3) for d in batches if d["finish_ms"] > d["exec_ms"]
                        for r in d["requests"])
        sizes = {}
        for d in batches:
            sizes[d["size"]] = sizes.get(d["size"], 0) + 1
        return {"rate": found, "sizes": sizes, "waited": waited[::max(1, len(waited) // 400)], "most": waited[-1],
                "batch_p50": answer["batch_size"]["p50"], "queueing_ms": answer["queueing_ms"],
                "bad_rate": answer["bad_rate"]}
    return run("cohort", "simulate", "-", "--policy", SYSTEMS[system], "--dispatches", "--json", input=w, keep=kept)


def batches_plan(size):
    return {f"{m['name']}/{s}": Job(lambda run, m=m, s=s: batches_and_queueing(run, m, s, size), 1)
            for m in PAIR for s in SYSTEMS}


def requests_over_sizes(sizes):
    """Of all requests, the percentage in batches of at most so many."""
    total, sums, out = sum(int(s) * n for s, n in sizes.items()), 0, []
    for s, n in sorted((int(s), n) for s, n in sizes.items()):
        sums += s * n
        out.append((s, 100 * sums / total))
    return out


def fig1_report(answers, size):
    rows, bars, images, data = [], [], {}, {}
    for m in PAIR:
        name, series = m["name"], {}
        for system in SYSTEMS:
            a = answers[f"{name}/{system}"]
            series[system] = requests_over_sizes(a["sizes"])
            data[f"{name}/{system}"] = {"batch_p50": a["batch_p50"], "sizes": a["sizes"], "rate_rps": a["rate"]}
            paper = PAPER_MEDIAN[name][system]
            rows.append([f"{name}, {system}", paper, a["batch_p50"], f"{a['batch_p50'] - paper:+g}"])
        above = {s: 100 - max((y for x, y in series[s] if x < {"ResNet50": 14, "InceptionResNetV2": 8}[name]),
                              default=0)
                 for s in SYSTEMS}
        rows.append([f"{name}, Symphony: requests in batches of {14 if name == 'ResNet50' else 8} or more",
                     "most", f"{above['Symphony']:.0f} %", ""])
        images[f"symphony-fig1-{name.lower()}"] = plots.lines(
            f"Fig. 1: {name}, batch sizes", "batch size", "requests in batches of at most this, %", series, steps=True,
            marks=False, y_range=(0, 100))
        ours, paper = data[f"{name}/Symphony"]["batch_p50"], PAPER_MEDIAN[name]["Symphony"]
        bars.append(Bar(f"Fig. 1: median batch of deferred on {name} within 2 of Symphony's", f"{ours} of {paper}",
                        abs(ours - paper) <= 2))
    body = "\n\n".join([
        "8 devices, each system at its own goodput of Table 2, 20 s of one Poisson trace. Median batch sizes:",
        table(["", "paper", "ours", "difference"], rows),
        *(image(f"Batch sizes of {m['name']}", f"symphony-fig1-{m['name'].lower()}") for m in PAIR),
        "The paper does not say at which rate it measured."])
    return Section(data, body, images, bars if size.name != "smoke" else [])


def fig12_report(answers, size):
    rows, images, data = [], {}, {}
    for m in PAIR:
        name, slo = m["name"], m["slo_ms"]
        series = {s: plots.share_below(answers[f"{name}/{s}"]["waited"]) for s in SYSTEMS}
        for system in SYSTEMS:
            q = answers[f"{name}/{system}"]["queueing_ms"]
            data[f"{name}/{system}"] = q
            rows.append([f"{name}, {system}", number(q["p50"]), number(q["p99"]), number(q["max"]),
                         percent(q["max"] / slo, 0)])
        images[f"symphony-fig12-{name.lower()}"] = plots.lines(
            f"Fig. 12: {name}, queueing delay", "ms from arrival to start", "requests, %", series, marks=False,
            y_range=(0, 100))
    worst = {(n, q): max(data[f"{n}/{s}"][q] for s in ("Nexus", "Clockwork")) / data[f"{n}/Symphony"][q]
             for n in PAPER_MEDIAN for q in ("p99", "max")}
    body = "\n\n".join([
        "The runs of Fig. 1. The paper says of its plot: Symphony's delay is 2 to 3 times shorter than Nexus' and "
        "Clockwork's, Nexus' longest is about half the SLO, Clockwork's no shorter, Shepherd's is like Symphony's.",
        table(["queueing, ms", "p50", "p99", "longest", "of the SLO"], rows),
        *(image(f"Queueing of {m['name']}", f"symphony-fig12-{m['name'].lower()}") for m in PAIR),
        "The larger of Nexus' and Clockwork's over Symphony's: "
        + "; ".join(f"{worst[n, 'p99']:.1f} times at p99 and {worst[n, 'max']:.1f} at the longest on {n}"
                    for n in PAPER_MEDIAN) + "."])
    return Section(data, body, images, [])


# Fig. 2 -------------------------------------------------------------------------------------------------------------

def fig2_load(size):
    return workload(24, copies(RESNET, 10, 100), duration=size.pick(1, 10, 20))


def fig2_rates(size):
    return [1000, 30000] if size.name == "smoke" else [1000, *range(3000, 31000, 3000)]


def fig2_plan(size):
    def work(run, policy, rate):
        a = run("cohort", "simulate", "-", "--policy", policy, "--rate", rate, "--json", input=fig2_load(size))
        return {k: a[k] for k in ("throughput_rps", "busy_fraction", "bad_rate", "devices_used")}
    plan = {f"{s}/{r}": Job(lambda run, p=p, r=r: work(run, p, r), r / 60000)
            for s, p in SYSTEMS.items() for r in fig2_rates(size)}
    plan["peak"] = Job(lambda run: goodput(run, fig2_load(size), "deferred", precision=size.pick(0.1, 0.01)), 4)
    return plan


def fig2_report(answers, size):
    peak, rates = answers["peak"]["goodput_rps"], fig2_rates(size)
    good = {s: [(r, answers[f"{s}/{r}"]["throughput_rps"]) for r in rates] for s in SYSTEMS}
    busy = {s: [(r, 100 * answers[f"{s}/{r}"]["busy_fraction"]) for r in rates] for s in SYSTEMS}
    ours = {r: answers[f"Symphony/{r}"] for r in rates}
    idle_off = max(abs(1 - ours[r]["busy_fraction"] - (peak - r) / peak) for r in rates if r <= peak)
    bad_off = max([abs(ours[r]["bad_rate"] - (r - peak) / r) for r in rates if r > peak] or [0])
    at = 3000 if 3000 in rates else rates[0]
    others = min(answers[f"{s}/{at}"]["busy_fraction"] for s in SYSTEMS if s != "Symphony")
    rows = [[s, percent(answers[f"{s}/{at}"]["busy_fraction"], 0), number(max(y for _, y in good[s])),
             number(good[s][-1][1]),
             percent(good[s][-1][1] / max(y for _, y in good[s]), 0)] for s in SYSTEMS]
    body = f"""10 ResNet50 (α 1.053, β 5.072 ms), SLO 100 ms, 24 devices; `deferred`'s goodput is {number(peak)} r/s.

{table(["", f"devices busy at {at} r/s", "most in time, r/s", "in time at 30 000 r/s", "of the most"], rows)}

{image("Requests in time over load", "symphony-fig2-left")}
{image("Devices busy over load", "symphony-fig2-right")}

The paper: at 3000 r/s Clockwork, Nexus and Shepherd keep all devices busy, and Symphony needs 20 %: ours
{percent(ours[at]['busy_fraction'], 0)}, the others {percent(others, 0)} and more, since nothing but batches takes
their time here. Above the peak Symphony and Nexus stay flat, as published; that Clockwork falls at once and
Shepherd wavers is seen of Shepherd alone: Clockwork's fall was of its scheduler's own work. By section 3.5 the
idle part should be (p − o) / p and the bad part (o − p) / o: `deferred` is off by at most {percent(idle_off)} and
{percent(bad_off)} of all."""
    bars = [Bar("Fig. 2: idle part of deferred off (p − o) / p by at most 5 %", percent(idle_off), idle_off <= 0.05),
            Bar("Fig. 2: bad part of deferred off (o − p) / o by at most 5 %", percent(bad_off), bad_off <= 0.05)]
    return Section({"peak_rps": peak, "good": good, "busy_pct": busy}, body,
                   {"symphony-fig2-left": plots.lines("Fig. 2, left: goodput", "offered, r/s", "in time, r/s", good),
                    "symphony-fig2-right": plots.lines("Fig. 2, right: devices busy", "offered, r/s", "busy, %", busy,
                                                       y_range=(0, 105))}, bars if size.name != "smoke" else [])


# Fig. 5 -------------------------------------------------------------------------------------------------------------

EXAMPLE = {"name": "m", "alpha_ms": 1, "beta_ms": 5, "slo_ms": 12}
GAP = (13, 14, 15)


def example(run, policy, first, busy=()):
    """Requests `first` to 48 but those of the gap; `busy`: each device serves something else until then."""
    models = [EXAMPLE] + [{"name": f"until {t}", "alpha_ms": 0, "beta_ms": t, "slo_ms": t} for t in busy]
    numbers = [i for i in range(first, 49) if i not in GAP]
    lines = [(0, f"until {t}") for t in busy] + [(0.75 * (i - 1), "m") for i in numbers]
    w = workload(3, models, duration=1, warmup=0)
    w["arrivals"] = {"process": "trace", "file": run.file(
        "time_ms,model\n" + "".join(f"{t},{m}\n" for t, m in lines), ".csv")}
    a = run("cohort", "simulate", "-", "--policy", policy, "--gather", "head", "--refuse-early", "off", "--dispatches",
            "--json", input=w)
    mine = [d for d in a["dispatches"] if d["model"] == "m"]
    ran = {numbers[r - 1] for d in mine for r in d["requests"]}
    return {"batches": [[d["exec_ms"], d["device"], d["size"], numbers[d["first"] - 1]] for d in mine],
            "dropped": [i for i in numbers if i not in ran]}


def fig5_plan(size):
    # Where requests 1 to 12 ran deferred, devices are free at 11.25, 14.25 and 17.25: eager takes over there.
    return {"deferred": Job(lambda run: example(run, "deferred", 1), 0.1),
            "eager": Job(lambda run: example(run, "eager", 16, (11.25, 14.25, 17.25)), 0.1)}


def fig5_report(answers, size):
    eager, deferred = answers["eager"], answers["deferred"]
    rows = []
    for at, gpu, count, words in ((11.25, 1, 1, "R16 alone, at 11.25"), (18, 1, 1, "R25 alone, at 18"),
                                  (23.25, 2, 2, "two of seven that wait, at 23.25")):
        found = next((b for b in eager["batches"] if abs(b[0] - at) < 1e-6), None)
        rows.append([f"eager: {words}", f"{count} on GPU {gpu}", f"{found[2]} on GPU {found[1] + 1}" if found
                     else "none",
                     "" if found and found[2] == count else "differs"])
    first = [f"R{i}" for i in eager["dropped"][:3]]
    rows.append(["eager: first requests that are dropped", "R35, R37, R38", ", ".join(first), ""])
    rows.append(["deferred: requests that are dropped", 0, len(deferred["dropped"]), ""])
    after = [b[2] for b in deferred["batches"] if b[0] > 20][:-1]  # The last one has fewer left.
    rows.append(["deferred: batch sizes after 20 ms", "4", f"{min(after)} to {max(after)}", ""])
    body = "\n\n".join([
        "ℓ(b) = b + 5 ms, SLO 12 ms, 3 devices, request i at 0.75 (i − 1) ms, requests 13 to 15 missing. Eager takes "
        "over where deferred left the devices, at request 16.", table(["", "paper", "ours", ""], rows),
        image("Batch sizes after three missing requests", "symphony-fig5"),
        f"Of requests 16 to 48 eager drops {len(eager['dropped'])}: " + ", ".join(f"R{i}" for i in eager["dropped"])
        + ". GPUs 1 and 3 are free at the same instant, 17.25: which of them has R21 to R24 and which R25 is "
        "arbitrary."])
    series = {n: [(b[0], b[2]) for b in a["batches"]] for n, a in answers.items()}
    bars = [Bar("Fig. 5: deferred drops nothing", str(len(deferred["dropped"])), not deferred["dropped"]),
            Bar("Fig. 5: eager drops R35, R37 and R38", ", ".join(first), {35, 37, 38} <= set(eager["dropped"]))]
    svg = plots.lines("Fig. 5: batches after three missing requests", "start, ms", "batch size", series)
    return Section(answers, body, {"symphony-fig5": svg}, bars)


# Fig. 6 -------------------------------------------------------------------------------------------------------------

NAMES = {"drop-head": "both drop-head", "head": "both head", "best": "each its better"}


def fig6a_plan(size):
    plan = {}
    for beta in size.pick([1, 15], [1, 2, 3, 5, 7, 9, 12, 15], range(1, 16)):
        m = {"name": "m", "alpha_ms": 1, "beta_ms": beta, "slo_ms": 2 * (8 + beta)}
        for policy in ("eager", "deferred"):
            plan[f"{beta}/{policy}"] = Job(lambda run, m=m, policy=policy: by_gather(
                run, workload(32, copies(m, 10, m["slo_ms"]), duration=size.pick(0.5, 10, 20)), policy,
                precision=size.pick(0.2, 0.01), seeds=size.pick(1, 2, 3)), 6)
    return plan


def fig6a_report(answers, size):
    betas = sorted({int(k.split("/")[0]) for k in answers})
    part = {b: over(answers[f"{b}/eager"], answers[f"{b}/deferred"]) for b in betas}
    rows = [[b, *(number(max(answers[f"{b}/{p}"].values()), 4) for p in ("deferred", "eager")),
             *(percent(part[b][g]) for g in NAMES)]
            for b in betas]
    first, last = part[betas[0]]["best"], part[betas[-1]]["best"]
    body = "\n\n".join([
        "32 devices, 10 models of α 1 ms and β as said, SLO 2 ℓ(8), Poisson arrivals; `eager` in percent of "
        "`deferred`, by gather rule.",
        table(["β, ms", "deferred, r/s", "eager, r/s", *NAMES.values()], rows),
        image("Eager's goodput in percent of deferred's", "symphony-fig6a"),
        "The paper, of a plot: nearly the same at β/α = 1, and the stronger batching is, the more deferring is "
        "worth. So here. Which gather rule the paper compares with it does not say; eager is far worse where it "
        "gives up the heads of its queues, since its batches are never large."])
    bars = [Bar("Fig. 6a: eager within 5 % of deferred at β/α = 1", percent(first), abs(first - 1) <= 0.05),
            Bar("Fig. 6a: eager's part at 15 is at most 0.9 times that at 1", percent(last), last < 0.9 * first)]
    svg = plots.lines("Fig. 6a: eager over deferred", "β / α", "goodput, % of deferred's",
                      {n: [(b, 100 * part[b][g]) for b in betas] for g, n in NAMES.items()}, y_range=(0, 110))
    return Section(part, body, {"symphony-fig6a": svg}, bars if size.name != "smoke" else [])


def fig6b_parts(size):
    return size.pick([0, 0.4], [0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8], [x / 20 for x in range(19)])


def fig6b_plan(size):
    def work(run, setup, policy):
        w = (workload(8, models_of(run, "a100", "--models", "ResNet50", "--slo-ms", 50)) if setup == "one"
             else workload(64, models_of(run, "a100")))
        w["duration_s"] = size.pick(0.5, 10, 20)
        return by_gather(run, w, policy, precision=size.pick(0.2, 0.01), seeds=size.pick(1, 2, 3))
    return {f"{setup}/{p}": Job(lambda run, setup=setup, p=p: work(run, setup, p), 3)
            for setup in ("one", "zoo") for p in ["deferred", *(f"timeout:{f:g}" for f in fig6b_parts(size))]}


def fig6b_report(answers, size):
    names = {"one": "ResNet50, 8 devices", "zoo": "37 models, 64 devices"}
    part = {f: {s: over(answers[f"{s}/timeout:{f:g}"], answers[f"{s}/deferred"]) for s in names}
            for f in fig6b_parts(size)}
    rows = [[f"{100 * f:.0f} %", *(percent(p[s][g]) for s in names for g in NAMES)] for f, p in part.items()]
    best = {s: {g: max(p[s][g] for p in part.values()) for g in NAMES} for s in names}
    rates = {s: " and ".join(f"{number(v, 4)} ({g})" for g, v in answers[f"{s}/deferred"].items()) for s in names}
    body = "\n\n".join([
        f"Time-outs in percent of each model's SLO; goodput in percent of `deferred`'s, which is {rates['one']} r/s "
        f"of ResNet50 with an SLO of 50 ms, and {rates['zoo']} of the zoo, both of the A100's table.",
        table(["time-out", *(f"{n.split(',')[0]}: {g}" for n in names.values() for g in NAMES.values())], rows),
        image("Time-outs over deferred", "symphony-fig6b"),
        f"The paper: alone, the best time-out is as good as deferring: ours {percent(best['one']['best'])}. With many "
        f"models it is much lower: ours {percent(best['zoo']['drop-head'])} at best where both give up heads of "
        f"queues, so also here, but {percent(best['zoo']['best'])} where each may choose its rule. The curves with "
        "drop-head have the shape of the paper's, which does not say which rule its time-outs had. `adaptive` is "
        "ahead of all of them (Fig. 9)."])
    bars = [Bar("Fig. 6b: the best time-out of one model within 3 % of deferred", percent(best["one"]["best"]),
                abs(best["one"]["best"] - 1) <= 0.03),
            Bar("Fig. 6b: in the zoo, with one rule for both (drop-head), time-outs are below deferred",
                percent(best["zoo"]["drop-head"]),
                best["zoo"]["drop-head"] < 1)]
    svg = plots.lines("Fig. 6b: time-outs over deferred", "time-out, % of the SLO", "goodput, % of deferred's",
                      {f"{s}, {g}": [(100 * f, 100 * p[s][g]) for f, p in part.items()] for s in names
                       for g in ("drop-head", "best")})
    return Section({str(f): p for f, p in part.items()}, body, {"symphony-fig6b": svg}, bars if size.name != "smoke"
                   else [])


EXPERIMENTS = [
    Experiment("symphony.table2", "Table 2: batches by formula, and goodput", table2_plan, table2_report),
    Experiment("symphony.fig1", "Fig. 1: batch sizes", batches_plan, fig1_report),
    Experiment("symphony.fig2", "Fig. 2: goodput and use of devices over load", fig2_plan, fig2_report),
    Experiment("symphony.fig5", "Fig. 4 and 5: three missing requests", fig5_plan, fig5_report),
    Experiment("symphony.fig6a", "Fig. 6a: eager beside deferred", fig6a_plan, fig6a_report),
    Experiment("symphony.fig6b", "Fig. 6b: time-outs beside deferred", fig6b_plan, fig6b_report),
    *symphony_mixes.EXPERIMENTS,
    Experiment("symphony.fig12", "Fig. 12: queueing delay", batches_plan, fig12_report),
    *symphony_pools.EXPERIMENTS,
]
