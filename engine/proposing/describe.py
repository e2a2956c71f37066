"""Puts into words, for a prompt, what is known: the task, the device, candidates and what the judge found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from engine.judging.devices import DEVICES, Device
from engine.judging.settings import NUMERICS
from engine.proposing.prompt import Item
from engine.records import Candidate, Case, CaseResult, Evaluation, MeasurementKind, Task, Verdict

MAX_LOG = 1_500
"""How many characters of a failed candidate's log are shown, from its end."""

_VERDICTS = {
    Verdict.CORRECT: "correct",
    Verdict.INCORRECT: "wrong answers",
    Verdict.COMPILE_ERROR: "does not compile",
    Verdict.RUNTIME_ERROR: "fails when it runs",
    Verdict.TIMEOUT: "not done in time",
    Verdict.OUT_OF_MEMORY: "runs out of memory",
    Verdict.TAMPERED: "tampers with how it is judged",
    Verdict.INFRASTRUCTURE_ERROR: "not judged, the machine failed",
}
_POLICIES = {
    "exact": "as precise as the reference's own type (for float32 a relative error up to 1e-5)",
    "reduced": "reduced precision (TF32 or fp16 inside a float32 task, a relative error up to 2e-3)",
    "bf16": "bf16 precision (a relative error up to 1.5e-2)",
}
_LABELS = {
    "no_triton": "launches no Triton kernel, so that it cannot become best",
    "fallback": "falls back on the library, so that it cannot become best",
    "frozen_weights": "keeps weights from its construction, so that it cannot become best",
    "unstable": "its time differs between fresh processes, so that it cannot become best",
    "review": "faster than the bound allows; a person must look",
}


def task_words(task: Task, entry: str, facts: Mapping[str, Any], numerics: str) -> tuple[str, ...]:
    """The task, what a candidate must define, and what counts as right, in pieces that share the reference's text."""
    cases = facts.get("cases", ())
    lines = [f"Replace the reference below by a faster Triton implementation. {_contract(task, entry)}"]
    inputs = [
        f"- {_case_name(case, cases)}{', '.join(map(_tensor, case['inputs']))}" for case in cases if case["inputs"]
    ]
    if inputs:
        lines += ["", "It is timed on these inputs:", *inputs]
    overrides = [f"- {case.name}: {_constants(case)}" for case in task.cases if case.overrides]
    if overrides:
        lines += ["", "In these cases constants of the module are replaced:", *overrides]
    lines += ["", f"It must be right at other sizes and contents too. {_numerics_words(numerics)}", "", "```python\n"]
    return ("\n".join(lines), task.source.rstrip("\n") + "\n", "```")


def _contract(task: Task, entry: str) -> str:
    if task.format == "kernelbench":
        return (
            f"Write a module that defines `class {entry}(nn.Module)` with the constructor arguments and the forward "
            "arguments of `Model`, and with its parameters under the same names and shapes where it has any: their "
            "values are copied from the reference's. Weights may change between calls."
        )
    return (
        f"Write a module that defines the function `{entry}` with the arguments of `reference` and its result; "
        "arguments named in MUTATES are changed in place as the reference changes them, and no others."
    )


def _case_name(case: Mapping[str, Any], cases: object) -> str:
    return f"{case['name']}: " if isinstance(cases, list | tuple) and len(cases) > 1 else ""


def _tensor(tensor: Mapping[str, Any]) -> str:
    return f"{tensor['dtype']}[{', '.join(map(str, tensor['shape']))}]"


def _constants(case: Case) -> str:
    return ", ".join(f"{name} = {value}" for name, value in case.overrides.items())


def _numerics_words(numerics: str) -> str:
    accepted = " or ".join(_POLICIES[tier] for tier in NUMERICS[numerics])
    lower = "" if numerics == "strict" else " Lower precision is compared with baselines of that precision."
    dot = " `tl.dot` on float32 multiplies in TF32 unless it is told input_precision='ieee'."
    return f"Accepted is: {accepted}.{lower}{dot}"


def device_words(facts: Mapping[str, Any], device: str) -> str:
    """The device with its ceilings, the toolchain, and the times to beat."""
    toolchain = facts.get("toolchain", {})
    known = DEVICES.get(toolchain.get("arch", ""))
    lines = (
        list(_ceilings(known)) if known else [f"{device or 'unknown'}, {toolchain.get('arch', 'unknown architecture')}"]
    )
    versions = [f"{name} {toolchain[name]}" for name in ("triton", "torch", "cuda") if toolchain.get(name)]
    if versions:
        lines.append(f"Toolchain: {', '.join(versions)}.")
    if facts.get("kind") == MeasurementKind.MODELLED:
        lines.append("There is no GPU here: times are modelled for it from traffic, registers and instructions.")
    for case in facts.get("cases", ()):
        lines.append(_times_to_beat(case))
    return "\n".join(line for line in lines if line)


def _ceilings(device: Device) -> Iterator[str]:
    tensor = ", ".join(f"{name} {flops / 1e12:.0f}" for name, flops in device.tensor_flops.items())
    yield f"{device.name} ({device.arch}): {device.multiprocessors} multiprocessors at {device.clock_ghz:g} GHz."
    yield (
        f"Memory {device.memory_bytes / 1e9:.0f} GB at {device.dram_bandwidth / 1e12:.2f} TB/s, "
        f"level 2 cache {device.l2_bytes >> 20} MiB at {device.l2_bandwidth / 1e12:.1f} TB/s."
    )
    yield f"Peak TFLOP/s: float32 {device.fp32_flops / 1e12:.0f}; tensor cores {tensor}."
    yield (
        f"A multiprocessor holds {device.registers} registers of 32 bits, {device.threads} threads, "
        f"{device.programs} programs and {device.shared_bytes >> 10} KiB of shared memory; a program may use "
        f"{device.shared_per_program >> 10} KiB of it, a thread 255 registers."
    )


def _times_to_beat(case: Mapping[str, Any]) -> str:
    times = [f"{name} {_us(value)}" for name, value in case.get("baselines", {}).items()]
    if case.get("bound_us") is not None:
        times.append(f"the bound (bytes and operations at the ceilings) {_us(case['bound_us'])}")
    return f"Times of the reference, case {case['name']}: {', '.join(times)}." if times else ""


def _us(time_us: float) -> str:
    return f"{time_us:.1f} us" if time_us < 1e4 else f"{time_us / 1e3:.1f} ms"


# Candidates


def outcome_words(candidate: Candidate, evaluation: Evaluation | None) -> str:
    """What came of a candidate, with the figures that tell why."""
    return "\n".join(_outcome(candidate, evaluation))


def _outcome(candidate: Candidate, evaluation: Evaluation | None) -> Iterator[str]:
    if evaluation is None:
        yield f"Not judged: {candidate.reason or candidate.state}."
        return
    yield f"Verdict: {_VERDICTS[evaluation.verdict]}{_time(evaluation)}."
    if not evaluation.correct and evaluation.reason:
        yield f"In stage {evaluation.stage}: {evaluation.reason}"
    failed = next((check for check in evaluation.checks if not check.passed), None)
    if failed is not None:
        detail = f": {failed.detail}" if failed.detail else ""
        yield f"First check that failed: {failed.name.replace('_', ' ')}{detail}."
    if evaluation.numerics is not None:
        numerics = evaluation.numerics
        yield (
            f"Numerics: tier {numerics.tier}, relative error {numerics.relative_error:.2e}, largest "
            f"{numerics.max_error:.2e}; the reference's own noise is {numerics.reference_noise:.2e}."
        )
    for case in evaluation.cases if len(evaluation.cases) > 1 else ():
        yield _case(case)
    for kernel in evaluation.static:
        spills = f", {kernel.spills} bytes of spills" if kernel.spills else ", no spills"
        yield (
            f"Kernel {kernel.kernel}: {kernel.registers} registers a thread{spills}, "
            f"{kernel.shared_bytes} bytes of shared memory."
        )
    for label in evaluation.labels:
        yield f"Label: {_LABELS.get(label, label.replace('_', ' '))}."
    if not evaluation.correct and evaluation.log.strip():
        yield f"The end of its log:\n```\n{evaluation.log.strip()[-MAX_LOG:]}\n```"


def _time(evaluation: Evaluation) -> str:
    if evaluation.time_us is None:
        return ""
    kinds = {str(case.measurement.kind) for case in evaluation.cases if case.measurement is not None}
    against = [f"{ratio:.2f}x {name}" for name, ratio in evaluation.speedup.items()]
    bound = [f"{evaluation.bound_fraction:.0%} of the bound"] if evaluation.bound_fraction is not None else []
    kind = f" {' or '.join(sorted(kinds))}" if kinds else ""
    return f", {_us(evaluation.time_us)}{kind}" + "".join(f", {part}" for part in (*against, *bound))


def _case(case: CaseResult) -> str:
    time = f", {_us(case.measurement.time_us)}" if case.measurement is not None else ""
    return f"Case {case.name}: {_VERDICTS[case.verdict]}{time}."


def kernel_item(candidate: Candidate, source: str, evaluation: Evaluation | None, *, heading: str = "##") -> Item:
    """A candidate with its outcome and source, in pieces that share the source's text."""
    idea = candidate.idea or "no idea was given"
    head = (
        f"{heading} Candidate {candidate.number} ({candidate.step}): {idea}\n\n{outcome_words(candidate, evaluation)}"
    )
    return (f"{head}\n\n```python\n", source.rstrip("\n") + "\n", "```")


def tried_words(candidates: Sequence[Candidate]) -> list[str]:
    """One line for each candidate: its idea, and what came of it."""
    return [f"- {candidate.idea or 'no idea was given'}: {_short(candidate)}" for candidate in candidates]


def _short(candidate: Candidate) -> str:
    if candidate.verdict is Verdict.CORRECT:
        return f"{candidate.speedup:.2f}x" if candidate.speedup is not None else "correct"
    return _VERDICTS[candidate.verdict] if candidate.verdict is not None else "not judged"
