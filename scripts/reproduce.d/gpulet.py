# SPDX-License-Identifier: Apache-2.0
"""gpu-let: which demands its packers serve, what their plans do under random arrivals and load that changes."""
import itertools
import json
import os
import pathlib

import plots
from pages import image, number, percent, table
from runner import Bar, Experiment, Job, Section

# Not part of the project: where to find it is said in scripts/reproduce. The same default as that of the bench.
PROFILES = pathlib.Path(os.environ.get("COHORT_GPULET_DATA")
                        or pathlib.Path(__file__).resolve().parents[3] / "shared/data/gpulet")
ABSENT = not (PROFILES / "latency.csv").is_file()
GPUS = 4
MIXES = {"equal": {"le": 50, "goo": 50, "res": 50, "ssd": 50, "vgg": 50},
         "long-only": {"res": 100, "ssd": 100, "vgg": 100},
         "short-skew": {"le": 100, "goo": 100, "res": 100, "ssd": 50, "vgg": 50}}
GRAPHS = {"game": (95, {"parallel": ["res", {"model": "le", "times": 6}]}),
          "traffic": (136, {"series": ["ssd", {"parallel": ["goo", "vgg"]}]})}
# A request of game asks 7 models, one of traffic 3: the paper counts requests of applications.
SYSTEMS = {"SBP": "squishy", "guided self-tuning": "self-tuning", "gpulet": "elastic", "gpulet+int": "elastic-int"}


def demand(scenario, scale):
    """DEMAND.json of a mix times `scale`, or of 100 `scale` requests a second of an application."""
    if scenario in GRAPHS:
        slo, graph = GRAPHS[scenario]
        asked = {"slo_ms": slo, "rate": round(100 * scale, 3), "graph": graph}
        return {"gpus": GPUS, "applications": {scenario: asked}}
    return {"gpus": GPUS, "demand": {m: round(r * scale, 3) for m, r in MIXES[scenario].items()}}


def pack(run, d, algorithm, *options, **more):
    folder = run.folder(PROFILES, ["latency.csv", "slo.csv", "util.csv", "interference.csv"])
    return run("cohort", "pack", *([] if d is None else ["-"]), "--profiles", folder,
               *(["--algorithm", algorithm] if algorithm else []), *options, "--json",
               input=d, negative=True, **more)


def most(run, scenario, algorithm, size, *options):
    """The largest scale that is schedulable, to half a percent."""
    met = lambda scale: pack(run, demand(scenario, scale), algorithm, *options)["schedulable"]
    low, high = 0.0, 0.5
    while met(high):
        low, high = high, high * 1.5
    while high - low > size.pick(0.2, 0.005, 0.001) * high and high > 1e-3:
        middle = (low + high) / 2
        low, high = (middle, high) if met(middle) else (low, middle)
    return round(low, 4)


def scenarios(size):
    every = [dict(zip(("goo", "le", "res", "ssd", "vgg"), c)) for c in itertools.product((0, 200, 400, 600), repeat=5)
             if any(c)]
    return every[::size.pick(50, 1)]


def schedulable(run, algorithm, size):
    algorithm, *more = algorithm.split()
    text = "".join(json.dumps({"gpus": GPUS, "demand": d}) + "\n" for d in scenarios(size))
    def kept(answers):
        return sum(a["schedulable"] for a in answers)
    return pack(run, None, algorithm, *more, "--scenarios", run.file(text, ".jsonl"), lines=True, keep=kept)


COUNTED = {"squishy": "SBP, whole GPUs", "squishy-even": "SBP on halves", "self-tuning": "guided self-tuning",
           "elastic": "gpulet", "elastic-int": "gpulet+int",
           "ideal": "ideal", "ideal --interference": "ideal, with interference", "exact": "exact (ours)"}


def counts_plan(size):
    return {a: Job(lambda run, a=a: schedulable(run, a, size), 0.5) for a in COUNTED if size.name != "smoke"
            or a != "exact"}


def counts_report(answers, size):
    total = len(scenarios(size))
    paper = {"squishy": "fewer (a plot)", "squishy-even": "1023", "elastic-int": "18 fewer than ideal"}
    gap = answers["ideal"] - answers["elastic-int"]
    fair = answers["ideal --interference"] - answers["elastic-int"]
    rows = [[COUNTED[a], paper.get(a, ""), n, percent(n / total)] for a, n in answers.items()]
    body = "\n\n".join([
        f"Of {total} demands, each of five models asked for at 0, 200, 400 or 600 r/s on {GPUS} GPUs, how many have a "
        "plan.", table(["", "paper", "ours", "of all"], rows),
        image("Schedulable demands", "gpulet-fig4"),
        f"Fig. 4: splitting GPUs in halves serves every demand, as published. Fig. 15: gpulet+int serves {gap} fewer "
        f"than ideal ({percent(gap / total)}; paper: 18, 1.8 %), and {fair} fewer than an ideal that plans for "
        "interference, too; the paper does not say which its ideal is."])
    bars = [Bar("Fig. 4: SBP on halves serves all demands", f"{answers['squishy-even']} of {total}",
                answers["squishy-even"] == total),
            Bar("Fig. 15: gpulet+int serves at most 2 % fewer demands than ideal", percent(gap / total),
                gap <= 0.02 * total)]
    svg = plots.bars("Fig. 4 and 15: schedulable demands", "demands", [""],
                     {COUNTED[a]: [n] for a, n in answers.items()})
    return Section(answers, body, {"gpulet-fig4": svg}, bars if size.name != "smoke" else [])


# Fig. 5 -------------------------------------------------------------------------------------------------------------

SHARED = {"temporal": [(("le", "vgg"), 100)], "MPS(20:80)": [(("le",), 20), (("vgg",), 80)]}


def latencies(model, partition):
    """ℓ(b) of a model on a part of a GPU, as a workload has it."""
    rows = (line.split(",") for line in (PROFILES / "latency.csv").read_text().split()[1:])
    return {r[1]: float(r[3]) for r in rows if r[0] == model and int(r[2]) == partition}


def fig5_plan(size):
    slo = {"le": 5, "vgg": 130}

    def work(run, parts, rate):
        bad = arrived = 0
        for models, partition in parts:
            w = {"devices": 1, "duration_s": size.pick(2, 60), "models": [
                {"name": m, "latency_ms": latencies(m, partition), "between": "step", "slo_ms": slo[m],
                 "max_batch": 32} for m in models]}
            a = run("cohort", "simulate", "-", "--policy", "eager", "--rate", rate * len(models), "--json", input=w)
            bad, arrived = bad + a["late"] + a["dropped"] + a["refused"], arrived + a["arrived"]
        return bad / arrived
    return {f"{n}/{r}": Job(lambda run, p=p, r=r: work(run, p, r), 0.2)
                    for n, p in SHARED.items() for r in size.pick([100, 400], range(50, 1001, 50))}


def fig5_report(answers, size):
    rates = sorted({int(k.split("/")[1]) for k in answers})
    bad = {n: {r: answers[f"{n}/{r}"] for r in rates} for n in SHARED}
    last = {n: max([r for r in rates if bad[n][r] <= 0.01], default=0) for n in SHARED}
    rows = [[r, *(percent(bad[n][r], 2) for n in SHARED)] for r in rates[1::2]]
    body = "\n\n".join([
        "LeNet and VGG-16 at the same rate on one GPU; late or dropped requests of both, Poisson arrivals, 60 s. In "
        "time they share the GPU by `cohort simulate --policy eager`; with fixed shares each has its own part.",
        table(["r/s of each", *SHARED], rows), image("Violations of LeNet and VGG-16", "gpulet-fig5"),
        "The paper, of a plot: shared in time violations rise steeply with the rate, fixed shares carry far higher "
        f"rates. Here at most 1 % are late up to {last['MPS(20:80)']} r/s with fixed shares, and shared in time "
        f"{'up to ' + str(last['temporal']) + ' r/s' if last['temporal'] else 'at no rate that was tried'}: LeNet's 5 "
        "ms leave no time to wait for a batch of VGG-16. MPS without fixed shares is not modelled."])
    svg = plots.lines("Fig. 5: violations of LeNet and VGG-16", "r/s of each", "late, %",
                      {n: [(r, 100 * v) for r, v in b.items()] for n, b in bad.items()})
    bars = [Bar("Fig. 5: fixed shares carry a higher rate than sharing in time",
                f"{last['MPS(20:80)']} and {last['temporal']} r/s",
                last["MPS(20:80)"] > last["temporal"])]
    return Section(answers, body, {"gpulet-fig5": svg}, bars if size.name != "smoke" else [])


# Fig. 12, 13 and 16 -------------------------------------------------------------------------------------------------

SCENARIOS = ["game", "traffic", *MIXES]


def late(run, scenario, algorithm, size, scale, *options):
    """Which part of the requests a plan violates under Poisson arrivals; None if there is no plan."""
    a = pack(run, demand(scenario, scale), algorithm, "--simulate-s", size.pick(1, 30, 60), *options)
    if not a["schedulable"]:
        return None
    return a["simulated"].get("per_application", {}).get(scenario, a["simulated"]["violation_rate"])


def fig12_plan(size):
    def work(run, scenario, algorithm):
        largest = most(run, scenario, algorithm, size)
        # Downwards: a plan for less is another plan, and small ones can be as tight, so there is nothing to halve.
        steps = size.pick(4, 40)
        for i in range(steps + 1):
            scale = round(largest * (1 - i / steps), 4) or 0.001
            violations = late(run, scenario, algorithm, size, scale)
            if violations is not None and violations <= 0.01:
                return {"planned": largest, "in_time": scale}
        return {"planned": largest, "in_time": 0}
    some = size.pick(["game", "equal"], SCENARIOS)
    return {f"{c}/{s}": Job(lambda run, c=c, a=a: work(run, c, a), 3) for c in some for s, a in SYSTEMS.items()}


def fig12_report(answers, size):
    some = list(dict.fromkeys(k.split("/")[0] for k in answers))
    ratio = lambda c, a, b, what: answers[f"{c}/{a}"][what] / (answers[f"{c}/{b}"][what] or float("inf"))
    gain = lambda a, b, what: sum(ratio(c, a, b, what) for c in some) / len(some) - 1
    unit = lambda c: 100 if c in GRAPHS else sum(MIXES[c].values())
    rows = {w: [[c, *(number(unit(c) * answers[f"{c}/{s}"][w], 4) for s in SYSTEMS)] for c in some]
            for w in ("planned", "in_time")}
    said = [("gpulet", "SBP", "+106.0 %"), ("gpulet+int", "SBP", "+102.6 %"),
            ("gpulet+int", "guided self-tuning", "+74.8 %")]
    gains = [[f"{a} over {b}", p, f"{100 * gain(a, b, 'planned'):+.1f} %", f"{100 * gain(a, b, 'in_time'):+.1f} %"]
             for a, b, p in said]
    body = "\n\n".join([
        f"Requests a second on {GPUS} GPUs, of applications as wholes: the most that a plan is found for,",
        table(["planned, r/s", *SYSTEMS], rows["planned"]),
        "and, going down in steps of 2.5 %, the first of which at most 1 % are late or lost under Poisson arrivals "
        "(interference counts for gpulet+int alone, whose plans know of it):",
        table(["in time, r/s", *SYSTEMS], rows["in_time"]),
        table(["on average", "paper", "ours, planned", "ours, in time"], gains),
        image("Most that is planned", "gpulet-fig12"),
        "The paper's game reaches 1502 r/s with gpulet+int and 720 with SBP, 2.09 times; ours "
        f"{ratio('game', 'gpulet+int', 'SBP', 'planned'):.2f} times. The profile decides: in the derived one a whole "
        "GPU loses less by small batches than the paper's did, so sharing in space gains less, most of all for "
        "applications, whose SLOs of 95 and 136 ms leave time for large batches. Guided self-tuning has the "
        "profile's best sizes here and no cost of finding them, and its plans know nothing of interference."])
    svg = plots.bars("Fig. 12: most that is planned, over SBP", "times SBP", some,
                     {s: [ratio(c, s, "SBP", "planned") for c in some] for s in SYSTEMS})
    least = min(ratio(c, "gpulet", "SBP", "planned") for c in some)
    bars = [Bar("Fig. 12: gpulet plans more than SBP in every scenario", f"at least {least:.2f} times", least > 1)]
    return Section(answers, body, {"gpulet-fig12": svg}, bars if size.name != "smoke" else [])


def fig13_plan(size):
    def work(run, scenario):
        out = {}
        for s in ("gpulet", "gpulet+int"):
            scale = most(run, scenario, SYSTEMS[s], size)
            # The plan as it is, but checked with neighbours that slow each other down.
            plan = {**pack(run, demand(scenario, scale), SYSTEMS[s]), "interference": True, "seconds": 0}
            broken = pack(run, None, None, "--verify", run.file(json.dumps(plan), ".json"))["violations"]
            out[s] = {"scale": scale, "broken": len(broken), "slos": sum("SLO" in b for b in broken)}
        out["late"] = late(run, scenario, "elastic-int", size, out["gpulet+int"]["scale"])
        margin = most(run, scenario, "elastic-int", size, "--burst-margin", 1)
        out["margin"] = {"scale": margin, "late": late(run, scenario, "elastic-int", size, margin, "--burst-margin", 1)}
        return out
    return {c: Job(lambda run, c=c: work(run, c), 3) for c in size.pick(["equal"], SCENARIOS)}


def fig13_report(answers, size):
    rows = [[c, number(a["gpulet"]["scale"]), f"{a['gpulet']['broken']}, {a['gpulet']['slos']} of SLOs",
             number(a["gpulet+int"]["scale"]), a["gpulet+int"]["broken"],
             percent(a["late"], 2), number(a["margin"]["scale"]), percent(a["margin"]["late"], 2)]
            for c, a in answers.items()]
    body = "\n\n".join([
        "At the largest multiple that each has a plan for: what of the plan breaks when neighbours slow each other "
        "down as the fitted model says (`cohort pack --verify`); of gpulet+int also how many requests are late under "
        "Poisson arrivals with interference, and the same of plans with `--burst-margin 1`.",
        table(["", "gpulet: multiple", "broken", "gpulet+int: multiple", "broken", "late", "with margin: multiple",
               "late"], rows),
        "The paper: gpulet violates more than 1 % in equal and short-skew, gpulet+int nowhere. Here gpulet's largest "
        "plans are full to the brim, so that interference breaks each, and gpulet+int's hold. What remains late of "
        "gpulet+int is chance: plans are of mean rates, and at the very last multiple Poisson arrivals exceed them "
        "now and then. A margin of one deviation ends that. How late gpulet's requests are with interference is not "
        "shown: `cohort pack --simulate-s` runs a plan that was made without interference without it."])
    bars = [Bar("Fig. 13: with interference no plan of gpulet+int breaks",
                ", ".join(str(a["gpulet+int"]["broken"]) for a in answers.values()),
                all(a["gpulet+int"]["broken"] == 0 for a in answers.values())),
            Bar("Fig. 13: at most 1 % late with a margin of one deviation",
                ", ".join(percent(a["margin"]["late"], 2) for a in answers.values()),
                all(a["margin"]["late"] is not None and a["margin"]["late"] <= 0.01 for a in answers.values()))]
    return Section(answers, body, {}, bars if size.name != "smoke" else [])


BESIDE = {"gpulet": ("elastic", "ideal"), "gpulet+int": ("elastic-int", "ideal"),
          "gpulet+int, ideal with interference": ("elastic-int", "ideal --interference")}


def fig16_plan(size):
    asked = sorted({a for pair in BESIDE.values() for a in pair})
    return {f"{c}/{a}": Job(lambda run, c=c, a=a: most(run, c, a.split()[0], size, *a.split()[1:]), 1)
                    for c in size.pick(["equal"], SCENARIOS) for a in asked}


def fig16_report(answers, size):
    some = list(dict.fromkeys(k.split("/")[0] for k in answers))
    part = {n: {c: answers[f"{c}/{a}"] / answers[f"{c}/{b}"] for c in some} for n, (a, b) in BESIDE.items()}
    mean = {n: sum(v.values()) / len(v) for n, v in part.items()}
    rows = [[c, "87.7 %, the least" if c == "traffic" else "", *(percent(part[n][c]) for n in part)] for c in some]
    rows.append(["on average", "92.3 %", *(percent(mean[n]) for n in part)])
    body = "\n\n".join([
        "Largest multiple that is planned, in percent of ideal's.", table(["", "paper: gpulet+int", *BESIDE], rows),
                        image("Largest multiple over ideal's", "gpulet-fig16"),
        "The paper's ideal uses the partitions of gpulet+int; whether it allows for interference is not said. Held "
        "against an ideal that does not, gpulet+int pays for what it allows for."])
    svg = plots.bars("Fig. 16: largest multiple over ideal's", "%", some,
                     {n.replace(", ideal with interference", ", both"): [100 * part[n][c] for c in some]
                      for n in part})
    bars = [Bar("Fig. 16: gpulet reaches at least 92.3 % of ideal on average", percent(mean["gpulet"]),
                mean["gpulet"] >= 0.923),
            Bar("Fig. 16: gpulet+int reaches at least 87 % of an ideal with interference on average",
                percent(mean["gpulet+int, ideal with interference"]),
                mean["gpulet+int, ideal with interference"] >= 0.87)]
    return Section(part, body, {"gpulet-fig16": svg}, bars if size.name != "smoke" else [])


# Fig. 14 ------------------------------------------------------------------------------------------------------------

def fig14_plan(size):
    def work(run):
        folder = run.folder(PROFILES, ["latency.csv", "slo.csv", "util.csv", "interference.csv"])
        return run("cohort", "replan", "-", "--profiles", folder, "--algorithm", "elastic-int", "--length-s",
                   size.pick(100, 1800), "--json",
                   input={"gpus": GPUS, "demand": {m: 300 for m in ("goo", "le", "res", "ssd", "vgg")}})
    return {"run": Job(work, 3)}


def fig14_report(answers, size):
    a = answers["run"]
    p = a["periods"]
    images = {"gpulet-fig14-rate": plots.lines("Fig. 14: requests in time", "s", "r/s", {
        m: [(x["end_s"], x["arrived_rps"][m]) for x in p] for m in p[0]["arrived_rps"]}
        | {"all": [(x["end_s"], sum(x["arrived_rps"].values())) for x in p]}, marks=False),
        "gpulet-fig14-used": plots.lines("Fig. 14: partitions in use", "s", "% of a GPU",
                                         {"in use": [(x["end_s"], x["used_pct"]) for x in p]}, marks=False, steps=True),
        "gpulet-fig14-violations": plots.lines("Fig. 14: violations", "s", "%",
                                               {"late or lost": [(x["end_s"], 100 * x["violation_rate"]) for x in p]},
                                               marks=False)}
    rows = [["violations", "0.14 %", percent(a["violation_rate"], 3)],
            ["partitions in use, % of a GPU", "rise and fall with the load",
             f"{a['used_pct']['least']} to {a['used_pct']['most']}"],
            ["plans in 90 periods", "", a["plans"]], ["interrupted models", "", a["interrupted"]]]
    body = "\n\n".join([
        "1800 s, two waves, five models each up to 300 r/s with phases of their own; a decision every 20 s, in "
        "service 12 s later, as the paper's 10 to 15 s.", table(["", "paper", "ours"], rows),
        *(image(n.split("-")[-1].capitalize(), n) for n in images),
                        "The paper's traces are not printed; the waves are drawn to its description."])
    bars = [Bar("Fig. 14: at most 0.14 % violations", percent(a["violation_rate"], 3), a["violation_rate"] <= 0.0014)]
    return Section({"violation_rate": a["violation_rate"], "used_pct": a["used_pct"], "plans": a["plans"]}, body,
                   images, bars if size.name != "smoke" else [])


TITLE = "gpu-let, reproduced in virtual time"
INTRO = """
What virtual time can show of gpu-let's evaluation, by `cohort pack` and `cohort replan`. The profiles are a set that
is not part of the project (`COHORT_GPULET_DATA`): SLOs are the paper's Table 4, use of cache and memory and the
fitted interference of its published code; latencies over batch and share of the GPU are **derived, not measured**.
Multiples and ratios are compared, not rates. SBP is `squishy`, gpulet `elastic`, gpulet+int `elastic-int`.
"""
MISSING = [["Fig. 1, 2, 7, 8, 10, 11", "drawings"],
           ["Fig. 3", "latencies over shares of a GPU, measured: `cohort profile --partitions` does that on a GPU; "
                      "here they are input"],
           ["Fig. 6, 9", "interference of 250 pairs on a GPU, and the error of its model: `cohort interference` "
                         "measures and fits both, on a GPU of yours ([how](../packing/interference.md))"],
           ["Fig. 5, MPS(default)", "sharing without fixed parts: no model of it"],
           ["Fig. 13, late requests of gpulet with interference",
            "`cohort pack --simulate-s` runs a plan that was made without interference without it"],
           ["Tables 1 to 5", "input, or a comparison in words"]]
EXPERIMENTS = [] if ABSENT else [
    Experiment("gpulet.fig4", "Fig. 4 and 15: schedulable demands", counts_plan, counts_report),
    Experiment("gpulet.fig5", "Fig. 5: LeNet and VGG-16 on one GPU", fig5_plan, fig5_report),
    Experiment("gpulet.fig12", "Fig. 12: most that can be served", fig12_plan, fig12_report),
    Experiment("gpulet.fig13", "Fig. 13: SLOs at the most that is planned", fig13_plan, fig13_report),
    Experiment("gpulet.fig14", "Fig. 14: a load that changes", fig14_plan, fig14_report),
    Experiment("gpulet.fig16", "Fig. 16: beside ideal", fig16_plan, fig16_report),
]
