# SPDX-License-Identifier: Apache-2.0
"""DVABatch: what its figures say of batching, on profiles shaped like its benchmarks (staged_models.py)."""
import random

import plots
from pages import image, number, percent, table
from runner import Bar, Experiment, Job, Section
from staged_models import BERTS, CNNS, MODELS, SHOWN, SLO, WINDOW, lengths, means, model, peak, seeds

# Fig. 3 -------------------------------------------------------------------------------------------------------------

def cases():
    """The three cases of section 3, an operator taking 10 ms: MODEL, arrivals, baseline, paper's averages."""
    def m(stages, **more):
        return {"name": "case", "batch_max": 4, "slo_ms": 200, "buffer_sets": 2,
                "stages": [{"name": n, "latency": r} for n, r in stages], **more}
    # A device that four operators fill; half of a padded short request is padding.
    one = m([(n, [{"batch": b, "size": s, "ms": ms, "share": b / 4}
                  for b in (1, 2, 3, 4) for s, ms in ((16, 5), (32, 10))]) for n in "ABCD"],
            parallel=True, sizes={"buckets": [16, 32]})
    flat = [{"batch": 4, "ms": 10}]
    two = m([("A", flat), *((n, [{"batch": b, "ms": 2.5 * b} for b in (1, 2, 4)]) for n in "BCD")])
    three = m([(n, flat) for n in "ABCD"], window_ms=40, tcomp_wait_ms=15)
    return {"I, input": (one, "time_ms,size\n0,10\n0,16\n0,3\n0,30\n", "zero-batch", 4, 2.5),
            "II, operators": (two, "time_ms\n0\n0\n0\n0\n", "zero-batch", 4, 2.875),
            "III, load": (three, "time_ms\n0\n50\n50\n50\n", "delay-batch:40", 8, 5.25)}


def fig3_plan(size):
    def work(run, m, csv, policy):
        return [run("cohort", "pipeline", "-", "--policy", p, "--arrivals", run.file(csv, ".csv"), "--json",
                    input=m)["mean_ms"] / 10
                for p in (policy, "dvabatch")]
    return {n: Job(lambda run, m=m, csv=csv, p=p: work(run, m, csv, p), 0.1)
            for n, (m, csv, p, _, _) in cases().items()}


def fig3_report(answers, size):
    rows, bars = [], []
    for n, (_, _, policy, one, multi) in cases().items():
        a, b = answers[n]
        rows += [[f"case {n}: {policy}, mean", f"{one} T", f"{a:g} T"],
                 [f"case {n}: dvabatch, mean", f"{multi} T", f"{b:g} T"]]
        bars.append(Bar(f"Fig. 3, case {n}: mean as published", f"{a:g} T and {b:g} T", abs(a - one) < 1e-6
                        and abs(b - multi) < 1e-6))
    body = table(["", "paper", "ours"], rows) + (
        "\n\nFour requests each; in case III requests 2 to 4 come at 5 T, the only instant that gives both published "
        "means.")
    svg = plots.bars("Fig. 3: mean latency of three cases", "T", list(answers), {
        "one batch": [a[0] for a in answers.values()], "dvabatch": [a[1] for a in answers.values()]})
    return Section(answers, body, {"dvabatch-fig3": svg}, bars)


# Fig. 14 and 16 -----------------------------------------------------------------------------------------------------

LOADS = {"low": 0.25, "medium": 0.6, "high": 0.9}
POLICIES = ["zero-batch", WINDOW, "dvabatch"]


def some(size):
    return size.pick(["vgg19", "bert_base"], MODELS)


def fig14_plan(size):
    def work(run, name, part, policy):
        m = model(name)
        return means(run, m, policy, round(part * peak(run, m, WINDOW, size), 1), size)
    return {f"{n}/{load}/{p}": Job(lambda run, n=n, part=part, p=p: work(run, n, part, p), 1.5 if p == "dvabatch"
                                   else 0.5)
            for n in some(size) for load, part in LOADS.items() for p in POLICIES}


def reductions(answers, size, what):
    """By load, on average over the models: how far dvabatch is below each of the others."""
    return {(rival, load): sum(1 - answers[f"{n}/{load}/dvabatch"][what] / answers[f"{n}/{load}/{rival}"][what]
                               for n in some(size)) / len(some(size))
            for rival in POLICIES[:2] for load in LOADS}


def latency_report(what, number_of, paper, answers, size):
    found = reductions(answers, size, what)
    rows = [[f"below {rival}, {load} load", f"{paper[rival][i]} %", percent(found[rival, load]),
             f"{100 * found[rival, load] - paper[rival][i]:+.1f}"]
            for rival in POLICIES[:2] for i, load in enumerate(LOADS)]
    each = [[f"{SHOWN[n]}, {load}", *(number(answers[f"{n}/{load}/{p}"][what]) for p in POLICIES)] for n in some(size)
            for load in LOADS]
    word = {"mean_ms": "mean", "p99_ms": "99th percentile of"}[what]
    better = lambda n, load: min(answers[f"{n}/{load}/{p}"]["mean_ms"] for p in POLICIES[:2])
    worst = max(answers[f"{n}/{load}/dvabatch"]["mean_ms"] / better(n, load) for n in some(size) for load in LOADS)
    body = "\n\n".join([
        f"How far dvabatch's {word} latency is below the others', on average over the six models, at 1/4, 3/5 and "
        f"9/10 of delay-batch's peak; 30 000 Poisson requests, {len(seeds(size))} seeds.",
        table(["", "paper", "ours", "points"], rows), table(["ms", *POLICIES], each),
        image(f"{word} latency", f"dvabatch-fig{number_of}"),
        "The paper tunes the window of DelayBatch to each model's peak and does not print it: 5 ms here, which "
        "decides how far ahead dvabatch is of it at low load. At high load dvabatch gains more here: on the "
        "profile's grid a batch of 33 takes what 64 take, and choosing what enters avoids that ([the "
        "grid](../batching/diversity.md#the-grid))."])
    svg = plots.bars(f"Fig. {number_of}: {word} latency, high load", "ms", [SHOWN[n] for n in some(size)],
                     {p: [answers[f"{n}/high/{p}"][what] for n in some(size)] for p in POLICIES})
    bars = [Bar("Fig. 14: dvabatch's mean at most 2 % above the better of both others, in all 18 cases",
                f"at most {worst:.3f} times", worst <= 1.02)]
    return Section(answers, body, {f"dvabatch-fig{number_of}": svg}, bars if what == "mean_ms" and size.name != "smoke"
                   else [])


def fig14_report(answers, size):
    return latency_report("mean_ms", 14, {"zero-batch": [16.1, 39.0, 57.7], WINDOW: [35.4, 47.3, 48.5]}, answers, size)


def fig16_report(answers, size):
    return latency_report("p99_ms", 16, {"zero-batch": [16.9, 27.4, 53.7], WINDOW: [45.2, 45.1, 29.2]}, answers, size)


# Fig. 15 and 17 -----------------------------------------------------------------------------------------------------

def stepping():
    """30 000 requests, 2000 at each rate, from 66 to 4000 a second."""
    draw, now, out = random.Random(1), 0.0, []
    for i in range(30000):
        now += 1000 * draw.expovariate(66 + (4000 - 66) * (i // 2000) / 14)
        out.append(now)
    return out


def fig15_plan(size):
    def stepped(run, name, policy):
        sizes = lengths().split()[1:]
        rows = stepping()[:size.pick(3000, 30000)]
        text = ("time_ms,size\n" + "".join(f"{t:.4f},{n}\n" for t, n in zip(rows, sizes)) if name in BERTS
                else "time_ms\n" + "".join(f"{t:.4f}\n" for t in rows))

        def kept(answer):  # The largest latency of each 200 requests.
            v = answer["latency_ms"]
            return [max(v[i:i + 200]) for i in range(0, len(v), 200)]
        return run("cohort", "pipeline", "-", "--policy", policy, "--arrivals", run.file(text, ".csv"), "--events",
                   "--json", input=model(name), keep=kept)
    plan = {f"{n}/{p}": Job(lambda run, n=n, p=p: peak(run, model(n), p, size), 10 if p == "dvabatch" else 3)
            for n in some(size) for p in (WINDOW, "dvabatch")}
    plan |= {f"steps/{n}/{p}": Job(lambda run, n=n, p=p: stepped(run, n, p), 1)
             for n in size.pick(["bert_base"], ["bert_base", "unet"])
             for p in (WINDOW, "dvabatch")}
    return plan


def fig15_report(answers, size):
    said = {"bert_base": "1.47 times", "bert_large": "1.37 times more"}
    rows, ratio = [], {}
    for n in some(size):
        a, b = answers[f"{n}/{WINDOW}"], answers[f"{n}/dvabatch"]
        ratio[n] = b / a
        rows.append([SHOWN[n], number(a, 4), number(b, 4), said.get(n, "the same"), f"{b / a:.2f} times"])
    images = {}
    for n in ("bert_base", "unet"):
        if f"steps/{n}/dvabatch" in answers:
            images[f"dvabatch-fig15-{n.replace('_', '-')}"] = plots.lines(
                f"Fig. 15: {SHOWN[n]} at a stepping load", "request", "largest latency of 200, ms",
                {p: [(200 * i, x) for i, x in enumerate(answers[f"steps/{n}/{p}"])]
                 for p in (WINDOW, "dvabatch")}, marks=False, y_range=(0, 2 * SLO))
    body = "\n\n".join([
        "Peak: the highest Poisson rate of which 99 % are within 200 ms. The drawings step from 66 to 4000 r/s, 2000 "
        "requests each, as the paper does; they are cut at 400 ms.",
        table(["peak, r/s", WINDOW, "dvabatch", "paper", "ours"], rows),
        *(image("Latency at a stepping load", i) for i in images),
        "BERTs gain far more here: the profile counts every padded token as work, and lengths are shaped like RTE's, "
        "not RTE itself. Without input diversity the peak is the device's, as published."])
    same = [r for n, r in ratio.items() if n in CNNS]
    bars = [Bar("Fig. 15: without input diversity the peak is kept, at least 0.99 times",
                f"{min(same):.3f} at the least", min(same) >= 0.99),
            Bar("Fig. 15: BERTs' peak at least 1.37 times", ", ".join(f"{ratio[n]:.2f}" for n in BERTS if n in ratio),
                all(ratio[n] >= 1.37 for n in BERTS if n in ratio))]
    return Section({k: v for k, v in answers.items() if not k.startswith("steps")}, body, images, bars
                   if size.name != "smoke" else [])


SPREADS = [0.1, 0.3, 0.55, 0.8]


def fig17_plan(size):
    return {f"{n}/{s}/{p}": Job(lambda run, n=n, s=s, p=p: peak(run, model(n), p, size, spread=s), 10 if p == "dvabatch"
                                else 3)
            for n in size.pick(["bert_base"], BERTS) for s in size.pick([0.55], SPREADS) for p in (WINDOW, "dvabatch")}


def fig17_report(answers, size):
    kept = list(dict.fromkeys(tuple(k.split("/")[:2]) for k in answers))
    gain = {(n, float(s)): answers[f"{n}/{s}/dvabatch"] / answers[f"{n}/{s}/{WINDOW}"] for n, s in kept}
    rows = [[SHOWN[n], s, number(answers[f"{n}/{s}/{WINDOW}"], 4), number(answers[f"{n}/{s}/dvabatch"], 4),
             f"{g:.2f} times"] for (n, s), g in gain.items()]
    rising = all(gain[n, a] <= gain[n, b] * 1.02 for n in BERTS for a, b in zip(SPREADS, SPREADS[1:]) if (n, a) in gain
                 and (n, b) in gain)
    body = "\n\n".join([
        "GLUE's texts are not at hand: lengths are drawn, log-normal about 55 tokens with more and more spread, cut "
        "to 10 and 289.",
        table(["", "spread (σ of the logarithm)", WINDOW, "dvabatch", "gain"], rows),
        image("Gain over the spread of lengths", "dvabatch-fig17"),
        "The paper: the more unlike the lengths, the larger the gain. Ours "
        + ("rises with the spread, too." if rising else "does not always rise with the spread.")])
    svg = plots.lines("Fig. 17: peak over the spread of lengths", "σ of the logarithm of lengths",
                      "dvabatch over delay-batch, times",
                      {SHOWN[n]: [(s, g) for (m, s), g in gain.items() if m == n] for n in BERTS
                       if any(m == n for m, _ in gain)})
    bars = [Bar("Fig. 17: the gain rises with the spread of lengths", "rises" if rising else "does not", rising)]
    return Section({f"{n}/{s}": g for (n, s), g in gain.items()}, body, {"dvabatch-fig17": svg}, bars
                   if size.name != "smoke" else [])


# Fig. 18 to 20 ------------------------------------------------------------------------------------------------------

PARTS = {"split and stretch": ["operator", "load"], "split alone": ["operator"], "stretch alone": ["load"]}


def fig18_plan(size):
    def work(run, name, part, how):
        m = model(name)
        rate = round(part * peak(run, m, WINDOW, size), 1)
        if how == WINDOW:
            return means(run, m, WINDOW, rate, size)
        return means(run, {**m, "policies": PARTS[how]}, "dvabatch", rate, size)
    return {f"{n}/{load}/{how}": Job(lambda run, n=n, p=p, how=how: work(run, n, p, how), 1.5)
            for n in size.pick(["vgg19"], ["linknet", "unet"])
            for load, p in LOADS.items() for how in (WINDOW, *PARTS)}


def fig18_report(answers, size):
    names = list(dict.fromkeys(k.split("/")[0] for k in answers))
    rows = [[f"{SHOWN[n]}, {load}", *(number(answers[f"{n}/{load}/{h}"]["mean_ms"]) for h in (WINDOW, *PARTS))]
            for n in names for load in LOADS]
    high = [1 - answers[f"{n}/high/split alone"]["mean_ms"] / answers[f"{n}/high/{WINDOW}"]["mean_ms"] for n in names]
    body = "\n\n".join([
        "Mean latency in ms with parts of the policy.", table(["", WINDOW, *PARTS], rows),
                        image("Mean latency with parts of the policy", "dvabatch-fig18"),
        f"At high load split alone is below delay-batch by {percent(sum(high) / len(high))} on average (paper: 15.0 "
        "%). `dvabatch` also chooses the size of the batch that enters, of all three variants; the paper's takes "
        "what Triton hands it, so its splitting alone has less to gain."])
    svg = plots.bars("Fig. 18: mean latency, high load", "ms", [SHOWN[n] for n in names],
                     {h: [answers[f"{n}/high/{h}"]["mean_ms"] for n in names] for h in (WINDOW, *PARTS)})
    bars = [Bar("Fig. 18: split alone at least 15 % below delay-batch at high load", percent(sum(high) / len(high)),
                sum(high) / len(high) >= 0.15)]
    return Section(answers, body, {"dvabatch-fig18": svg}, bars if size.name != "smoke" else [])


HAND_OVER = 0.05


def fig19_plan(size):
    def work(run, name, sets):
        m = model(name)
        return means(run, m, "dvabatch", round(0.9 * peak(run, m, WINDOW, size), 1), size,
                     options=("--buffer-sets", sets, "--overhead-ms", HAND_OVER))
    return {f"{n}/{k}": Job(lambda run, n=n, k=k: work(run, n, k), 1.5) for n in some(size)
            for k in size.pick([1, 2], [1, 2, 3, 4])}


def fig19_report(answers, size):
    sets = sorted({int(k.split("/")[1]) for k in answers})
    rows = [[SHOWN[n], *(number(answers[f"{n}/{k}"]["mean_ms"]) for k in sets)] for n in some(size)]
    body = "\n\n".join([
        f"Mean latency in ms by buffer sets, at 9/10 of delay-batch's peak; {HAND_OVER} ms for each hand-over.",
                        table(["", *sets], rows), image("Mean latency by buffer sets", "dvabatch-fig19"),
        "The paper: two are best, since more cost synchronisation on the GPU. That cost is none in virtual time: "
        "more than two sets neither help nor hurt a device that runs one batch at a time, and let BERT's batches "
        "overlap more."])
    svg = plots.lines("Fig. 19: mean latency by buffer sets", "buffer sets", "ms, over that with two", {
        SHOWN[n]: [(k, answers[f"{n}/{k}"]["mean_ms"] / answers[f"{n}/2"]["mean_ms"])
                   for k in sets] for n in some(size)}, x_values=sets)
    gain = max(answers[f"{n}/2"]["mean_ms"] / answers[f"{n}/1"]["mean_ms"] for n in some(size))
    bars = [Bar("Fig. 19: two buffer sets are at most 5 % worse than one", f"at most {gain:.3f} times", gain <= 1.05)]
    return Section(answers, body, {"dvabatch-fig19": svg}, bars if size.name != "smoke" else [])


STAGED = ["bert_base", "linknet", "unet", "resnet152"]
HAND_OVERS = [0, 0.02]


def fig20_plan(size):
    def work(run, name, stages, cost):
        rate = round(0.6 * peak(run, model(name), WINDOW, size), 1)
        return means(run, model(name, stages), "dvabatch", rate, size, options=("--overhead-ms", cost))["mean_ms"]
    return {f"{n}/{k}/{c}": Job(lambda run, n=n, k=k, c=c: work(run, n, k, c), 2)
            for n in size.pick(["vgg19"], STAGED) for k in size.pick([1, 4], [1, 2, 3, 4, 6, 8, 12, 20])
            for c in HAND_OVERS}


def fig20_report(answers, size):
    names = list(dict.fromkeys(k.split("/")[0] for k in answers))
    stages = sorted({int(k.split("/")[1]) for k in answers})
    value = lambda n, k, c=HAND_OVERS[1]: answers[f"{n}/{k}/{c}"]
    best = {n: min(stages, key=lambda k, n=n: value(n, k)) for n in names}
    said = {"bert_base": 2, "linknet": 4, "resnet152": 4}
    rows = [[f"{SHOWN[n]}, {c} ms", *(number(value(n, k, c)) for k in stages), said.get(n, "") if c else "", best[n]
             if c else ""]
            for n in names for c in HAND_OVERS]
    body = "\n\n".join([
        "Mean latency in ms by the number of equal stages at 3/5 of delay-batch's peak, with hand-overs that cost "
        "nothing and 0.02 ms.",
        table(["", *stages, "best, paper", "best, ours"], rows), image("Mean latency by stages", "dvabatch-fig20"),
        "The paper: few stages leave no chances, twenty cost too much; what a hand-over cost it does not print. Here "
        "four are best of LinkNet and U-Net, whose last quarter prefers small batches. ResNet152 and BERT gain "
        "little by more stages: `dvabatch` lets in rows of a good size at once, which the paper's policies, given "
        "batches by Triton, cannot."])
    svg = plots.lines("Fig. 20: mean latency by stages, 0.02 ms each", "stages", "ms, over that of one stage", {
        SHOWN[n]: [(k, value(n, k) / value(n, 1)) for k in stages] for n in names}, log_x=True)
    bars = [Bar("Fig. 20: 20 stages are worse than the best number",
                ", ".join(f"{SHOWN[n]} {value(n, stages[-1]) / value(n, best[n]):.2f}" for n in names),
                all(value(n, stages[-1]) > value(n, best[n]) for n in names)),
            Bar("Fig. 20: four stages are best of LinkNet", str(best.get("linknet")), best.get("linknet") == 4)]
    return Section(answers, body, {"dvabatch-fig20": svg}, bars if size.name != "smoke" else [])


TITLE = "DVABatch, reproduced in virtual time"
INTRO = """
What virtual time can show of DVABatch's evaluation, by `cohort pipeline`. The paper measured six models on a Titan
RTX and prints no tables of them, so the profiles here are **derived, not measured**: flat up to a stage's preferred
batch as the text tells it, in proportion beyond. Latencies in ms are therefore of no meaning by themselves; ratios
are what is compared. ZeroBatch is `zero-batch`, DelayBatch `delay-batch:5`. `dvabatch` is this project's planned form
of the policies ([diversity](../batching/diversity.md)), which may choose what enters, too.
"""
MISSING = [["Fig. 1, 2, 7 to 13", "drawings and code of the design; Fig. 8's steps and Fig. 11's states are tests of "
                                  "the library"],
           ["Fig. 4", "lengths of GLUE's texts: data"], ["Fig. 5, 6", "times of operators measured on a Titan RTX"],
           ["Fig. 21", "overhead of staging on a GPU, in a closed loop: real time. On a CPU staging costs 0.99 "
                       "times, [host_pipeline](host_pipeline.md)"],
           ["Fig. 20, throughput", "the peak does not depend on stages where hand-overs cost nothing; the latency is "
                                   "shown"]]
EXPERIMENTS = [
    Experiment("dvabatch.fig3", "Fig. 3: three cases worked by hand", fig3_plan, fig3_report),
    Experiment("dvabatch.fig14", "Fig. 14: mean latency at three loads", fig14_plan, fig14_report),
    Experiment("dvabatch.fig16", "Fig. 16: tail latency at three loads", fig14_plan, fig16_report),
    Experiment("dvabatch.fig15", "Fig. 15: peaks and a stepping load", fig15_plan, fig15_report),
    Experiment("dvabatch.fig17", "Fig. 17: peaks by lengths", fig17_plan, fig17_report),
    Experiment("dvabatch.fig18", "Fig. 18: parts of the policy", fig18_plan, fig18_report),
    Experiment("dvabatch.fig19", "Fig. 19: buffer sets", fig19_plan, fig19_report),
    Experiment("dvabatch.fig20", "Fig. 20: stages", fig20_plan, fig20_report),
]
