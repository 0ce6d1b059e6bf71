# SPDX-License-Identifier: Apache-2.0
"""Markdown of the pages: tables, numbers, bars."""
import textwrap


def table(head, rows):
    """The first column is text, the others are numbers or text as they come."""
    line = lambda cells: "| " + " | ".join(str(c) for c in cells) + " |"
    return "\n".join([line(head), line(["---"] * len(head)), *(line(r) for r in rows)])


def number(x, digits=3):
    """To so many significant digits, with whole numbers whole and thousands set apart."""
    if x is None:
        return "none"
    if isinstance(x, str):
        return x
    if x == 0:
        return "0"
    if abs(x) >= min(1000, 10 ** (digits - 1)):
        return f"{round(x):,}".replace(",", " ")
    return f"{x:.{digits}g}"


def percent(part, digits=1):
    return "none" if part is None else f"{100 * part:.{digits}f} %"


def off(ours, paper):
    """How far ours is from the paper's, signed."""
    return "" if not paper or ours is None else f"{100 * (ours / paper - 1):+.1f} %"


def image(words, name):
    return f"![{words}](images/{name}.svg)"


def page(title, intro, sections, command, commit, missing):
    """`sections`: [(Experiment, Section)]; `missing`: [(what, why)] that is not shown."""
    bars = [b for _, s in sections for b in s.bars]
    text = [f"# {title}", "", intro.strip(), "",
            f"Made by `{command}` at {commit}; parts of it by `--only NAME`, NAME as below each heading.", ""]
    if bars:
        missed = sum(not b.met for b in bars)
        text += [f"## Bars: {len(bars) - missed} of {len(bars)} met", "",
                 table(["bar", "figure", ""], [[b.text, b.value, "met" if b.met else "MISSED"] for b in bars]), ""]
    for e, s in sections:
        text += [f"## {e.title}", "", f"`scripts/reproduce --only {e.name}`", "", s.body.strip(), ""]
    if missing:
        text += ["## Not shown, and why", "", table(["what", "why"], missing), ""]
    return "\n".join(wrapped("\n".join(text).strip()))


def wrapped(text):
    """Paragraphs in lines of at most 150 columns; tables, headings and images as they are."""
    for block in text.split("\n\n"):
        as_it_is = block.startswith(("|", "#", "!", "`scripts")) or "\n|" in block or "\n![" in block
        yield block if as_it_is else textwrap.fill(block, 150, break_long_words=False, break_on_hyphens=False)
        yield ""
