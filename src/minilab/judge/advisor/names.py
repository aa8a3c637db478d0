"""SIGNALS: what the advisor reads, and under which names the servers export it.

Names looked at: vLLM 0.32, its V0 engine and early V1 (old names), SGLang 0.5.23 and its older
documentation. The first name that a page has is taken. Runs in the page too.
"""

HISTOGRAMS = {
    "ttft": ["vllm:time_to_first_token_seconds", "sglang:time_to_first_token_seconds"],
    "itl": [
        "vllm:inter_token_latency_seconds",
        "sglang:inter_token_latency_seconds",
        "vllm:time_per_output_token_seconds",
        "sglang:time_per_output_token_seconds",
    ],
    "tpot": [
        "vllm:request_time_per_output_token_seconds",
        "sglang:request_time_per_output_token_seconds",
    ],
    "queue": ["vllm:request_queue_time_seconds", "sglang:queue_time_seconds"],
    "prefill": ["vllm:request_prefill_time_seconds"],
    "decode": ["vllm:request_decode_time_seconds"],
    "e2e": ["vllm:e2e_request_latency_seconds", "sglang:e2e_request_latency_seconds"],
    "prompt": ["vllm:request_prompt_tokens", "sglang:prompt_tokens_histogram"],
    "output": ["vllm:request_generation_tokens", "sglang:generation_tokens_histogram"],
    "step_tokens": ["vllm:iteration_tokens_total"],
    "transfer": ["vllm:nixl_xfer_time_seconds", "sglang:kv_transfer_latency_ms"],
    "transfer_bytes": ["vllm:nixl_bytes_transferred"],
    "transfer_descriptors": ["vllm:nixl_num_descriptors"],
}
"""Histograms: the base name, without _bucket, _sum, _count."""

COUNTERS = {
    "finished": ["vllm:request_success_total", "sglang:num_requests_total"],
    "prompt_tokens": ["vllm:prompt_tokens_total", "sglang:prompt_tokens_total"],
    "output_tokens": ["vllm:generation_tokens_total", "sglang:generation_tokens_total"],
    "preemptions": [
        "vllm:num_preemptions_total",
        "vllm:num_preemptions",
        "sglang:num_retracted_requests_total",
    ],
    "prefix_queries": ["vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total"],
    "prefix_hits": [
        "vllm:prefix_cache_hits_total",
        "vllm:gpu_prefix_cache_hits_total",
        "sglang:cached_tokens_total",
    ],
    "tier_queries": ["vllm:external_prefix_cache_queries_total"],
    "tier_hits": ["vllm:external_prefix_cache_hits_total"],
    "drafts": ["vllm:spec_decode_num_drafts_total"],
    "draft_tokens": ["vllm:spec_decode_num_draft_tokens_total"],
    "accepted": ["vllm:spec_decode_num_accepted_tokens_total"],
    "refused": ["vllm:admission_rejections_total"],
    "failed_transfers": ["vllm:nixl_num_failed_transfers_total"],
}

GAUGES = {
    "running": ["vllm:num_requests_running", "sglang:num_running_reqs"],
    "waiting": ["vllm:num_requests_waiting", "sglang:num_queue_reqs"],
    "kv_usage": ["vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "sglang:token_usage"],
    "hit_rate": ["sglang:cache_hit_rate", "vllm:gpu_prefix_cache_hit_rate"],
    "accept_length": ["sglang:spec_accept_length"],
    "accept_rate": ["sglang:spec_accept_rate"],
    "balance": ["sglang:eplb_balancedness"],
    "transfer_speed": ["sglang:kv_transfer_speed_gb_s"],
}

PER_POSITION = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
CONFIG = "vllm:cache_config_info"
START = "process_start_time_seconds"

MILLISECONDS = "_ms"
"""Names that end so are in milliseconds; everything else is in seconds."""

MOE_WORDS = ["moe", "mixtral", "deepseek-v", "deepseek-r1", "kimi-k", "a3b", "a22b", "gpt-oss"]
"""Parts of the names of public mixture-of-experts models, in lower case."""
