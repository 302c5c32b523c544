#!/usr/bin/env python3
"""Checks who includes whom, and a few rules that no compiler sees.

    check_includes.py [ROOT]

A folder includes include/renga, base, itself and what stands in its row of MODULES; a
third-party header lives only in the folders that THIRD_PARTY gives it. The include roots of
cmake/RengaModule.cmake hold the first half while compiling; this script holds it for headers
that nobody compiles, for kernels/ and tests/, and for system headers, which are visible
everywhere. The table is the one of CONTRIBUTING.md.
"""

import re
import sys
from pathlib import Path

# Folder under src/ -> the other folders it may include.
MODULES = {
    "base": set(),
    "formats": set(),
    "metrics": set(),
    "backend": {"kernels"},
    "model": {"formats", "backend"},
    "batching": {"metrics"},
    "engine": {"batching", "model", "backend", "metrics"},
    "text": {"formats"},
    "quantize": {"kernels", "formats", "backend", "model", "text"},
    "session": {"metrics"},
    "service": {"text", "session", "batching", "metrics"},
    "transport": {"metrics", "proto"},
    "gateway": {"metrics", "proto"},
}
MODULES["app"] = set(MODULES) | {"proto", "kernels"}

# Header (a pattern for the whole name) -> the places that may include it. A place is a
# folder, or one file.
THIRD_PARTY = [
    (r"(spdlog|fmt)/.*", {"base"}),
    (r"(immintrin|cpuid|x86intrin)\.h", {"kernels/cpu"}),
    (r"(cuda|cublas|nvml|mma|cooperative_groups|cub/).*", {
        "kernels/cuda", "src/backend/cuda_device.cc", "src/backend/cuda_gemm.cc", "src/backend/cuda_gemm.h",
    }),
    # NVML is looked for at run time.
    (r"dlfcn\.h", {"src/backend/nvml.cc"}),
    # The emulator's threads are fibers, of which the sanitizers must be told.
    (r"(boost/context|sanitizer)/.*", {"tests/simt"}),
    # AMX's tile registers are asked for by syscall(), which unistd.h declares.
    (r"sys/syscall\.h", {"kernels/cpu"}),
    # Files of a model are mapped by `formats`, plain memory by base/aligned_buffer.
    (r"sys/mman\.h", {"formats", "base"}),
    # The memory check asks glibc for the heap's live bytes.
    (r"malloc\.h", {"app"}),
    (r"boost/json.*", {"formats", "text", "gateway"}),
    (r"boost/asio.*", {"session", "gateway"}),
    (r"boost/beast.*", {"gateway"}),
    (r"boost/system/.*", {"session", "gateway", "formats", "text"}),
    (r"prometheus/.*", {"metrics"}),
    (r"(pcre2|utf8proc)\.h", {"text"}),
    (r"openssl/.*", {"session", "transport", "gateway"}),
    (r"(hiredis/.*|xxhash\.h|zstd\.h)", {"session"}),
    (r"(grpc|grpcpp|google/protobuf)/.*|grpc\+\+/.*", {"transport", "gateway", "bench/load"}),
    (r"(yaml-cpp|CLI)/.*", {"app"}),
    (r"(gtest|gmock)/.*", {"tests"}),
    (r"benchmark/.*", {"bench"}),
    # Debian's absl gives false races, and does not exist on a bare GPU machine.
    (r"absl/.*", set()),
    # g++ 12 or clang 14 on libstdc++ 12 lack them, or compile them badly.
    (r"format|expected|ranges|source_location|print", set()),
]

# POSIX headers that any folder but kernels/ may include.
POSIX = {
    "arpa/inet.h", "dirent.h", "fcntl.h", "netdb.h", "netinet/in.h", "netinet/tcp.h", "poll.h",
    "pthread.h", "sched.h", "signal.h", "strings.h", "sys/eventfd.h", "sys/resource.h",
    "sys/socket.h", "sys/stat.h", "sys/time.h", "sys/types.h", "sys/un.h", "sys/wait.h", "time.h",
    "unistd.h",
}  # fmt: skip
POSIX_KERNELS = {"stdint.h", "stddef.h", "string.h", "math.h", "unistd.h"}
INL_HEADERS = {"stdint.h", "stddef.h", "immintrin.h"}
# Plain structs that the per-ISA bodies see, under the same rule: nothing of std:: in them.
INL_STRUCTS = {"kernels/ops.h", "kernels/block_format.h", "kernels/kv_page_format.h"}

MAX_LINES = 600
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
COMMENT = re.compile(r"//.*|/\*.*?\*/", re.S)
TEST_DEPS = re.compile(r"^\s*set\(deps_(\w+)\s+([^)]*)\)", re.M)


def test_deps(root):
    """tests/<folder> -> modules, from the table of tests/CMakeLists.txt."""
    table = root / "tests/CMakeLists.txt"
    text = table.read_text() if table.exists() else ""
    return {name: set(deps.split()) for name, deps in TEST_DEPS.findall(text)}


def closure(modules):
    """What the headers of `modules` may show in their turn."""
    seen = set()
    todo = list(modules)
    while todo:
        module = todo.pop()
        if module not in seen:
            seen.add(module)
            todo.extend(MODULES.get(module, ()))
    return seen


class Place:
    """Where a file stands: its folder's name, and which folders it may include."""

    def __init__(self, path, deps_of_tests):
        parts = path.parts
        self.path = path
        self.kind = parts[0]
        self.folder = parts[1] if len(parts) > 2 else ""
        self.names = {path.as_posix(), parts[0], "/".join(parts[:2])}
        if self.kind == "include":
            self.may = {"renga"}
        elif self.kind == "src":
            self.names.add(self.folder)
            self.may = MODULES.get(self.folder, set()) | {"renga", "base", self.folder}
        elif self.kind == "kernels":
            self.may = {"kernels"}
        elif self.kind == "tests" and self.folder == "reference":
            self.may = {"tests/reference"}
        elif self.kind == "tests":
            # A test may use what the headers of its own modules use; the programs of other
            # kinds (fuzz, integration) stand in the same table or may see everything.
            own = closure(deps_of_tests.get(self.folder, set(MODULES)))
            self.names |= own
            self.may = own | {"renga", "base", "tests", "proto"}
        else:  # bench
            self.names.add("bench")
            self.may = set(MODULES) | {"renga", "base", "kernels", "tests", "bench", "proto"}

    def is_inl(self):
        in_cpu = self.kind == "kernels" and self.folder == "cpu"
        return in_cpu and self.path.name.endswith("-inl.h") or self.path.as_posix() in INL_STRUCTS


def target_of(name):
    """The folder that `#include "name"` means, or None if it is none of ours."""
    first, _, rest = name.partition("/")
    if name.endswith(".pb.h"):
        return "proto"
    if first == "tests":
        return "tests/" + rest.partition("/")[0]
    if first in MODULES or first in {"renga", "kernels", "bench"}:
        return first
    return None


def check_third_party(place, name):
    for pattern, homes in THIRD_PARTY:
        if re.fullmatch(pattern, name):
            if place.names & homes:
                return None
            where = ", ".join(sorted(homes)) if homes else "nowhere"
            return f"<{name}> may be included only in: {where}"
    if "/" not in name and "." not in name:
        return None  # The C++ standard library.
    if name in POSIX_KERNELS or (name in POSIX and place.kind not in {"kernels", "include"}):
        return None
    return f"<{name}> is in no row: add it to THIRD_PARTY or POSIX of check_includes.py"


def check_include(place, bracket, name):
    if ".." in Path(name).parts:
        return f'"{name}": no ".." in an include'
    if name.startswith(("src/", "include/")):
        return f'"{name}": write it from its folder on, without src/ or include/'
    if place.is_inl():
        if name in INL_HEADERS | INL_STRUCTS or re.fullmatch(r"kernels/.*-inl\.h", name):
            return None
        allowed = ", ".join(sorted(INL_HEADERS | INL_STRUCTS))
        return f"{name}: *-inl.h and what they see include only {allowed} and other *-inl.h"
    target = target_of(name)
    if target is None:
        if bracket == '"':
            return f'"{name}": ours is written from its folder on, foreign headers in <>'
        return check_third_party(place, name)
    if bracket == "<":
        return f"<{name}>: our own headers are written in quotes"
    if target in place.may or target.startswith("tests/") and "tests" in place.may:
        return None
    return f'"{name}": {place.path.parent.as_posix()} may not include {target}'


def check_text(place, lines):
    """Rules of one file besides its includes: pairs of line number and message."""
    # In x.cc and x_test.cc the comment of x.h will do.
    header = place.path.stem.removesuffix("_test") + ".h"
    opening = lines[0] if lines else ""
    if not re.match(rf'//|#include "(.*/)?{re.escape(header)}"', opening):
        yield 1, "a file opens with a comment that says what it is for"
    if len(lines) > MAX_LINES:
        yield MAX_LINES + 1, f"{len(lines)} lines: more than {MAX_LINES}, so split the file"
    is_header = place.path.suffix in {".h", ".cuh"}
    if is_header and "#pragma once" not in lines:
        yield 1, "a header needs #pragma once"
    for number, line in enumerate(lines, 1):
        code = COMMENT.sub("", line)
        if is_header and re.search(r"\busing\s+namespace\b", code):
            yield number, "no `using namespace` in a header"
        below_app = place.kind in {"src", "kernels", "include"} and place.folder != "app"
        if below_app and re.search(r"\b(secure_)?getenv\b", code):
            yield number, "no getenv below src/app: read it there and hand it down"


def check_file(root, path, deps_of_tests):
    place = Place(path, deps_of_tests)
    lines = (root / path).read_text(errors="replace").splitlines()
    for number, line in enumerate(lines, 1):
        match = INCLUDE.match(line)
        problem = match and check_include(place, match[1], match[2])
        if problem:
            yield f"{path}:{number}: {problem}"
    for number, problem in check_text(place, lines):
        yield f"{path}:{number}: {problem}"


def check(root):
    deps_of_tests = test_deps(root)
    files = sorted(
        path.relative_to(root)
        for top in ("include", "src", "kernels", "tests", "bench")
        for path in (root / top).rglob("*")
        if path.suffix in {".h", ".cc", ".cu", ".cuh"} and path.is_file()
    )
    if not files:
        return [f"{root}: no sources found"]
    problems = []
    for path in files:
        if path.parts[0] == "src" and path.parts[1] not in MODULES:
            problems.append(f"{path}:1: src/{path.parts[1]} has no row in MODULES")
            continue
        problems.extend(check_file(root, path, deps_of_tests))
    return problems


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[2])
    problems = check(root.resolve())
    print(*problems, sep="\n", end="\n" if problems else "")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
