"""Formulas as MathML, which browsers set by themselves: no script, no font of ours, no network.

latex2mathml speaks MathML 3; browsers know the smaller MathML Core. What lies between the two is mended here, and the
spaces that TeX would put are put.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from xml.etree import ElementTree as ET

from morph.errors import MorphError

SPACES = {
    "thinmathspace": "0.1667em", "mediummathspace": "0.2222em", "thickmathspace": "0.2778em",
    "negativethinmathspace": "-0.1667em", "negativemediummathspace": "-0.2222em",
}  # fmt: skip
THIN = SPACES["thinmathspace"]
_ALPHABETS = {"script": "SCRIPT", "bold": "BOLD", "double-struck": "DOUBLE-STRUCK", "fraktur": "FRAKTUR"}
_FENCES = {"⟨": "prefix", "⟩": "postfix"}
_RELATIONS = "⟺⟸⟹⇔⇒⇐"
_OPENING = {"(", "[", "{", "⟨", "|", "‖"}
_ATOMS = {"mi", "mn", "msub", "msup", "msubsup", "mfrac", "msqrt", "mrow"}


@cache
def mathml(latex: str, display: bool = False) -> str:
    """A formula as a `<math>` element, its LaTeX as alternative text.

    Raises:
        MorphError: for LaTeX that comes out with a command unread.
    """
    from latex2mathml.converter import convert

    try:
        text = convert(latex.strip(), display="block" if display else "inline")
        root = ET.fromstring(re.sub(r' xmlns="[^"]*"', "", text))
    except Exception as error:  # the library raises a dozen kinds of its own
        raise MorphError(
            f"the formula {latex!r} cannot be read ({type(error).__name__}): write it in other LaTeX"
        ) from None
    _mend(root)
    if "\\" in "".join(root.itertext()):
        raise MorphError(f"the formula {latex!r} has a command that MathML cannot show: write it in other LaTeX")
    root.set("alttext", latex.strip())
    if root.get("display") == "inline":
        del root.attrib["display"]
    return ET.tostring(root, encoding="unicode")


def _mend(parent: ET.Element) -> None:
    for child in parent:
        _mend(child)
    _join_letters(parent)
    for child in parent:
        _mend_one(child)
    if parent.tag in ("math", "mrow"):
        _sign(parent)
        _space_functions(parent)


def _mend_one(node: ET.Element) -> None:
    text = node.text or ""
    if node.tag == "mspace":
        node.set("width", SPACES.get(node.get("width", ""), node.get("width", "0")))
    elif node.tag in ("mi", "mn") and node.get("mathvariant") in _ALPHABETS:
        node.text = "".join(_letter(letter, _ALPHABETS[node.attrib["mathvariant"]]) for letter in text)
        del node.attrib["mathvariant"]
    elif node.tag == "mi" and text in _FENCES:
        node.tag, node.attrib = "mo", {"form": _FENCES[text], "stretchy": "false"}
    elif node.tag == "mi" and "Α" <= text <= "Ω":
        node.set("mathvariant", "normal")  # upright, as TeX sets Greek capitals
    elif node.tag == "mi" and text and text in _RELATIONS:
        node.tag = "mo"
    elif node.tag == "mo" and text in ("∞", "∂"):
        node.tag = "mi"
    elif node.tag == "mo" and text == "/":
        node.attrib |= {"lspace": "0", "rspace": "0"}
    elif node.tag == "mo" and len(text) > 1 and text.isalpha():
        node.tag = "mi"  # \operatorname


def _letter(letter: str, alphabet: str) -> str:
    """A letter of a mathematical alphabet. Eleven of them are older than the others and have names of their own."""
    case = "CAPITAL" if letter.isupper() else "SMALL"
    for name in (f"MATHEMATICAL {alphabet} {case} {letter.upper()}", f"{alphabet} {case} {letter.upper()}"):
        try:
            return unicodedata.lookup(name)
        except KeyError:
            continue
    return letter


def _join_letters(parent: ET.Element) -> None:
    r"""The letters of `\mathrm{softmax}` become one name, which is upright by being longer than a letter."""
    children, run = list(parent), []
    for child in [*children, None]:
        is_letter = child is not None and child.tag == "mi" and child.get("mathvariant") == "normal"
        if child is not None and is_letter and len(child.text or "") == 1 and (child.text or "").isalpha():
            run.append(child)
            continue
        if len(run) > 1:
            run[0].text = "".join(letter.text or "" for letter in run)
            del run[0].attrib["mathvariant"]
            for letter in run[1:]:
                parent.remove(letter)
        run = []


def _sign(row: ET.Element) -> None:
    """A minus after an operator, or first of all, is a sign: no space behind it."""
    before = None
    for child in row:
        if child.tag == "mo" and child.text in ("−", "+", "±"):
            is_first = before is None or (before.tag == "mo" and before.get("form") != "postfix" and before.text != ")")
            if is_first:
                child.set("form", "prefix")
        before = child


def _name(node: ET.Element | None) -> bool:
    """Whether a node is the name of a function, as in log, or log with an index."""
    if node is None:
        return False
    inner = node[0] if node.tag in ("msub", "msup", "munder") and len(node) else node
    return inner.tag == "mi" and len(inner.text or "") > 1 and (inner.text or "").isalpha()


def _space_functions(row: ET.Element) -> None:
    """A thin space around a function's name, unless brackets or operators bring their own."""
    children = list(row)
    for i in range(len(children) - 1, -1, -1):
        if not _name(children[i]):
            continue
        after = children[i + 1] if i + 1 < len(children) else None
        if after is not None and after.tag in _ATOMS and not _is_bracketed(after):
            row.insert(i + 1, ET.Element("mspace", width=THIN))
        if i and children[i - 1].tag in _ATOMS and not _name(children[i - 1]):
            row.insert(i, ET.Element("mspace", width=THIN))


def _is_bracketed(node: ET.Element) -> bool:
    return node.tag == "mrow" and len(node) > 0 and (node[0].text or "") in _OPENING
