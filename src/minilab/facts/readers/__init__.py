"""Other tools' benchmark files as RunLogs, and one run in each tool's words.

``read`` takes the result files of vLLM, SGLang, aiperf, guidellm and inference-perf, and our own
run logs. ``compare`` shows what each tool would print for the same run. What a file does not hold
is unavailable, never invented. Only data is parsed: nothing here evaluates or unpickles.
"""

from __future__ import annotations

from minilab.facts.readers.compare import TOOLS, compare
from minilab.facts.readers.detect import FORMATS, read, summary
from minilab.facts.readers.words import (
    as_aiperf,
    as_guidellm,
    as_inference_perf,
    as_llmperf,
    as_sglang,
    as_vllm,
)

__all__ = [
    "FORMATS",
    "TOOLS",
    "as_aiperf",
    "as_guidellm",
    "as_inference_perf",
    "as_llmperf",
    "as_sglang",
    "as_vllm",
    "compare",
    "read",
    "summary",
]
