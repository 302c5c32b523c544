"""Reads docker/Dockerfile and .dockerignore: stages, what they copy, their settings."""

import fnmatch
import pathlib
import re
import shlex

from conftest import ROOT

PATH = ROOT / "docker" / "Dockerfile"


class Stage:
    """One FROM with the instructions that follow: [(keyword, rest of the line), ...]."""

    def __init__(self, base, name):
        self.base = base
        self.name = name
        self.instructions = []

    def all(self, keyword):
        return [rest for word, rest in self.instructions if word == keyword]

    def last(self, keyword):
        return self.all(keyword)[-1]

    def environment(self):
        words = [word for rest in self.all("ENV") for word in shlex.split(rest)]
        return dict(word.split("=", 1) for word in words)

    def copies(self):
        """[(source, target), ...] of what comes out of the repository."""
        found = []
        for rest in self.all("COPY"):
            *sources, target = rest.split()
            if not sources[0].startswith("--from="):
                found += [(source, target) for source in sources]
        return found


def stages():
    """{name: Stage}, in order."""
    text = re.sub(r"^\s*#.*\n", "", PATH.read_text(), flags=re.MULTILINE)
    found = {}
    for line in re.sub(r"\\\n\s*", " ", text).splitlines():
        if not line.strip():
            continue
        keyword, rest = line.split(None, 1)
        if keyword == "FROM":
            base, name = re.fullmatch(r"(\S+) AS (\S+)", rest).groups()
            stage = found[name] = Stage(base, name)
        else:
            stage.instructions.append((keyword, rest))
    return found


def ancestry(name):
    """The stage and those that it is built upon, itself last."""
    known = stages()
    line = [known[name]]
    while line[0].base in known:
        line.insert(0, known[line[0].base])
    return line


def environment(name):
    """What a container of that stage has in its environment."""
    return {key: value for stage in ancestry(name) for key, value in stage.environment().items()}


def is_sent(path):
    """Whether .dockerignore lets a path of the repository reach the builder."""
    sent = True
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        pattern, keep = line.removeprefix("!"), line.startswith("!")
        parts = pathlib.PurePosixPath(path).parts
        heads = ["/".join(parts[: i + 1]) for i in range(len(parts))]
        if pattern.startswith("**/"):
            hit = any(fnmatch.fnmatch(part, pattern[3:]) for part in parts)
        else:
            hit = any(fnmatch.fnmatch(head, pattern) for head in heads)
        if hit:
            sent = keep
    return sent
