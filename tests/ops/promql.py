"""Which series a PromQL expression reads: enough of the language for our own expressions."""

import re

_WORDS = {"and", "or", "unless", "bool", "offset", "inf", "nan"}
_CLAUSE = re.compile(r"\b(by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)")
_SELECTOR = re.compile(r"(?<![\w:.])([a-zA-Z_:][\w:]*)\s*(\{[^}]*\})?(\s*\()?")
_STRING = re.compile(r'"[^"]*"')


def selectors(expression):
    """[("name", '{label="value"}'), ...]; the matchers may be empty."""
    strings = []

    def hide(match):
        strings.append(match.group(0))
        return f'"{len(strings) - 1}"'

    text = _STRING.sub(hide, expression)
    text = _CLAUSE.sub(" ", text)
    text = re.sub(r"\[[^\]]*\]", " ", text)
    text = re.sub(r"\boffset\s+\w+", " ", text)
    found = []
    for name, matchers, call in _SELECTOR.findall(text):
        if call or name in _WORDS:
            continue
        whole = re.sub(r'"(\d+)"', lambda match: strings[int(match.group(1))], matchers)
        found.append((name, whole))
    return found


def names(expression):
    return {name for name, _ in selectors(expression)}


def family(name, families):
    """The metric family that a sample's name belongs to, or None; `families`: {name: type}."""
    if name in families:
        return name
    stem, _, suffix = name.rpartition("_")
    if suffix in ("bucket", "sum", "count") and families.get(stem) == "histogram":
        return stem
    return None


def families_of(exposition):
    """{name: type} of a text exposition."""
    return dict(re.findall(r"^# TYPE (\S+) (\S+)$", exposition, re.MULTILINE))
