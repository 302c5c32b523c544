"""The script that reads the CUDA compiler's reports, on made-up ones."""

import check_resources
import pytest

UNIT = "_ZN5renga4cuda45_GLOBAL__N__ef908044_12_attention_cu_06718632"


def report(arch="80", name="18Entry_kMergeGroups", stack=0, spills=0, used="Used 64 registers, used 0 barriers"):
    entry = f"{UNIT}{name}ENS0_13AttentionArgsE"
    return (
        f"ptxas info    : 0 bytes gmem\nptxas info    : Compiling entry function '{entry}' for 'sm_{arch}'\n"
        f"ptxas info    : Function properties for {entry}\n"
        f"    {stack} bytes stack frame, {spills} bytes spill stores, {spills} bytes spill loads\n"
        f"ptxas info    : {used}, 464 bytes cmem[0]\nptxas info    : Compile time = 20.825 ms\n"
    )


def everywhere(**what):
    return "".join(report(arch, **what) for arch in check_resources.ARCHITECTURES)


CASE = {"case": "merge", "threads": 128, "shared_bytes": 0, "bytes": 6e6, "flops": 0, "tensor_cores": False}


@pytest.mark.parametrize(
    "mangled, name",
    [
        (f"{UNIT}18Entry_kMergeGroupsENS0_13AttentionArgsE", "kMergeGroups"),
        # The 7 alone would fit nearly: "Entry_k" is followed by an E.
        (f"{UNIT}17Entry_kEmbedQ4KXYENS0_9EmbedArgsE", "kEmbedQ4KXY"),
        ("_Z5otherPf", None),
        ("_ZN5renga90Entry_kAENS_1AE", None),
    ],
)
def test_a_kernels_name_is_found_in_its_symbol(mangled, name):
    assert check_resources.entry_name(mangled) == name


def test_a_report_is_read_kernel_by_kernel():
    text = report() + report("90", used="Used 70 registers, used 1 barriers, 24 bytes lmem") + report(
        "90", name="8Entry_kA", stack=16, spills=4
    )
    assert check_resources.parse(text) == {
        ("kMergeGroups", "80"): {"stack": 0, "spills": 0, "local": 0, "registers": 64},
        ("kMergeGroups", "90"): {"stack": 0, "spills": 0, "local": 24, "registers": 70},
        ("kA", "90"): {"stack": 16, "spills": 8, "local": 0, "registers": 64},
    }


def problems(text, table=None, cases=None):
    kernels = check_resources.parse(text)
    table = check_resources.new_table(kernels, {}) if table is None else table
    return check_resources.find_problems(kernels, table, {"kMergeGroups": CASE} if cases is None else cases)


def test_a_sound_kernel_passes():
    assert problems(everywhere()) == []


@pytest.mark.parametrize(
    "what, message",
    [
        ({"stack": 8}, "8 bytes of stack"),
        ({"spills": 4}, "8 bytes of spills"),
        ({"used": "Used 64 registers, 40 bytes lmem"}, "40 bytes of local"),
    ],
)
def test_memory_that_a_kernel_must_not_use_is_named(what, message):
    found = problems(everywhere(**what))
    assert len(found) == 4 and all(message in line for line in found)


def test_registers_above_the_limit_are_named_with_their_architecture():
    table = check_resources.new_table(check_resources.parse(everywhere()), {})
    more = everywhere().replace("sm_90", "sm_999") + report("90", used="Used 65 registers")
    assert any("sm_90: 65 registers, limit 64" in line for line in problems(more, table))


def test_what_is_missing_or_too_much_is_named():
    assert "no report of ptxas" in problems("", {}, {})[0]
    assert any("not compiled for 86, 89, 90" in line for line in problems(report()))
    assert any("no case" in line for line in problems(everywhere(), cases={}))
    assert any("not in registers.json" in line for line in problems(everywhere(), {}))
    table = check_resources.new_table(check_resources.parse(everywhere()), {}) | {"kGone": {}}
    assert problems(everywhere(), table) == ["registers.json: there is no kernel kGone"]


def test_a_new_table_keeps_limits_that_people_set():
    kernels = check_resources.parse(everywhere(used="Used 61 registers"))
    assert check_resources.new_table(kernels, {})["kMergeGroups"]["limit"] == 64
    old = {"kMergeGroups": {"registers": {}, "limit": 62}}
    assert check_resources.new_table(kernels, old)["kMergeGroups"]["limit"] == 62
    assert check_resources.json.loads(check_resources.table_text(check_resources.new_table(kernels, old)))


@pytest.mark.parametrize(
    "arch, registers, threads, shared, blocks",
    [
        ("80", 95, 128, 48 * 1024, 3),
        ("86", 95, 128, 48 * 1024, 2),
        ("90", 95, 128, 48 * 1024, 4),
        ("90", 255, 128, 0, 2),
        ("80", 32, 256, 0, 8),
        ("86", 32, 256, 0, 6),
        ("86", 16, 32, 0, 16),
        ("80", 65, 256, 0, 3),  # 65 are 72.
    ],
)
def test_blocks_per_sm(arch, registers, threads, shared, blocks):
    assert check_resources.blocks_per_sm(arch, registers, threads, shared) == blocks


def test_a_bound_is_the_longer_of_moving_and_counting():
    assert check_resources.bound("A10G", CASE) == (pytest.approx(1e-5), "bytes")
    math = CASE | {"flops": 62.5e9, "tensor_cores": True}
    assert check_resources.bound("A10G", math) == (pytest.approx(1e-3), "math")
    assert check_resources.bound("H200", math | {"tensor_cores": False}) == (pytest.approx(62.5 / 67e3), "math")


def test_the_table_of_the_readme_is_replaced_and_nothing_else():
    kernels = check_resources.parse(everywhere())
    rows = check_resources.readme_rows(check_resources.new_table(kernels, {}), {"kMergeGroups": CASE})
    text = f"a\n{check_resources.BEGIN}\nold\n{check_resources.END}\nb\n"
    done = check_resources.with_table(text, rows)
    assert done == f"a\n{check_resources.BEGIN}\n{rows}\n{check_resources.END}\nb\n"
    assert check_resources.with_table(done, rows) == done
    assert "| `kMergeGroups` | 128 | 64 | 0 | 8 | `merge` | 6 |  | 10 (bytes) | 1.4 (bytes) |" in rows
    with pytest.raises(ValueError):
        check_resources.with_table("no markers", rows)


def test_shapes_name_a_kernel_by_its_first_case():
    lines = [
        '{"id":380,"name":"kMergeGroups","threads":128}',
        '{"case":"first","kernel":380}',
        '{"case":"second","kernel":380}',
        '{"case":"third","kernel":9}',
    ]
    cases = check_resources.read_shapes(lines)
    assert cases["kMergeGroups"]["case"] == "first" and cases["kernel 9"]["case"] == "third"
