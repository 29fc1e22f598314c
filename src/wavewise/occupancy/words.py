"""Residency in words."""

from wavewise.findings import NextCta
from wavewise.hardware import Launch


def limiter_words(limiter: str) -> str:
    """Limiters as read aloud: "registers and shared memory"."""
    names = [name.replace("cta_slots", "CTA slots").replace("_", " ") for name in limiter.split("+")]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def next_cta_words(step: NextCta, launch: Launch) -> str:
    """What the step takes: "2 CTAs/SM at <= 50,176 B of shared memory (now 80,000)"."""
    count = f"{step.ctas_per_sm} CTA{'s' if step.ctas_per_sm > 1 else ''}/SM"
    if step.impossible_reason is not None:
        return f"no {count}: {step.impossible_reason}"
    needs = [
        f"<= {limit:,} {unit} (now {now:,})"
        for limit, unit, now in (
            (step.threads_per_cta, "threads", launch.threads),
            (step.shared_memory_bytes, "B of shared memory", launch.shared_memory_bytes),
            (step.registers_per_thread, "registers", launch.registers_per_thread),
        )
        if limit is not None and now is not None
    ]
    return f"{count} at {' and '.join(needs)}" if needs else f"{count} fit already"
