"""The steps of step_bench on OpenVINO GenAI; runs in the environment that has it.

    openvino_steps.py --model FILE.gguf --threads N [--steps 32] [--repetitions 5] [--max-batch 64]
                      [--started T]

Prints one line of JSON: tokens per second of each step, the better of two pipelines, both
as OpenVINO sets them up by itself: LLMPipeline, and the continuous batching one
(SchedulerConfig) with room for all prompts in one step. Timed from outside: a prefill is a
whole generation of one token, a decode step one call of `step` with every sequence
decoding, or the time between two tokens of LLMPipeline; greedy sampling is in both, text
in neither. Each prompt is used once: a cached prefix would answer for the computation.
"""

import argparse
import json
import re
import statistics
import sys
import time

PREFILL, CONTEXT, BATCHES, VOCAB = 512, 128, (1, 8, 32, 64), 49151


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--steps", type=int, default=32)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--max-batch", type=int, default=max(BATCHES), help="leave out larger ones")
    parser.add_argument("--started", type=float, default=None, help="time.time() of the start")
    return parser.parse_args()


args = parse_args()
# After the command line: importing takes half a second.
import numpy  # noqa: E402
import openvino  # noqa: E402
import openvino_genai as genai  # noqa: E402

next_prompt = 0


def make_prompt(tokens):
    """The token ids of step_bench's prompt number `next_prompt`, as a tensor [1, tokens]."""
    global next_prompt
    ids = [1 + (i * 131 + next_prompt * 17) % VOCAB for i in range(tokens)]
    next_prompt += 1
    return openvino.Tensor(numpy.array([ids], dtype=numpy.int64))


def make_config(tokens):
    config = genai.GenerationConfig()
    config.max_new_tokens = tokens
    config.ignore_eos = True
    config.do_sample = False
    return config


def prefill_speed(generate):
    times = []
    for i in range(1 + args.repetitions):
        prompt = make_prompt(PREFILL)
        begin = time.perf_counter()
        generate(prompt)
        if i > 0:  # The first one warms it up.
            times.append(time.perf_counter() - begin)
    return PREFILL / statistics.median(times)


def run_alone():
    """LLMPipeline: prefill, and decode of one sequence."""
    pipeline = genai.LLMPipeline(args.model, "CPU", INFERENCE_NUM_THREADS=args.threads)
    ready_s = time.time() - args.started if args.started else None
    speeds = {f"prefill {PREFILL}": prefill_speed(lambda p: pipeline.generate(p, make_config(1)))}
    resident = int(re.search(r"VmRSS:\s+(\d+)", open("/proc/self/status").read())[1]) * 1024
    pipeline.generate(make_prompt(CONTEXT), make_config(4))
    times = []
    for _ in range(2):
        result = pipeline.generate(make_prompt(CONTEXT), make_config(1 + args.steps))
        times += [d / 1e6 for d in result.perf_metrics.raw_metrics.m_durations]
    speeds["decode batch 1"] = 1 / statistics.median(times)
    return speeds, ready_s, resident


def run_batches():
    """The continuous batching pipeline: the same, and batches."""
    scheduler = genai.SchedulerConfig()
    scheduler.max_num_batched_tokens = max(BATCHES) * CONTEXT
    scheduler.enable_prefix_caching = False
    pipeline = genai.ContinuousBatchingPipeline(
        args.model, scheduler, "CPU", {"INFERENCE_NUM_THREADS": args.threads}
    )

    def finish(requests, tokens):
        """Seconds of each step until all of them are answered."""
        handles = [pipeline.add_request(i, p, make_config(tokens)) for i, p in enumerate(requests)]
        times = []
        while pipeline.has_non_finished_requests():
            begin = time.perf_counter()
            pipeline.step()
            times.append(time.perf_counter() - begin)
        for handle in handles:
            handle.read_all()
        return times

    speeds = {f"prefill {PREFILL}": prefill_speed(lambda p: finish([p], 1))}
    for batch in (b for b in BATCHES if b <= args.max_batch):
        finish([make_prompt(CONTEXT) for _ in range(batch)], 3)
        times = finish([make_prompt(CONTEXT) for _ in range(batch)], 1 + args.steps)
        # The first step computes all prompts, the rest one token of every sequence.
        if len(times) != 1 + args.steps:
            sys.exit(f"batch {batch}: {len(times)} steps, not {1 + args.steps}")
        speeds[f"decode batch {batch}"] = batch / statistics.median(times[1:])
    return speeds


def main():
    alone, ready_s, resident = run_alone()
    batched = run_batches()
    speeds = {step: max(alone.get(step, 0.0), batched[step]) for step in batched}
    print(
        json.dumps(
            {
                "version": genai.get_version(), "speeds": speeds, "alone": alone, "batched": batched,
                "ready_s": ready_s, "resident_bytes": resident,
            }
        )
    )  # fmt: skip


main()
