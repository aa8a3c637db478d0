"""DeepSeek-V2 and V3: attention over pages of latents (MLA), a mixture of experts, MTP."""
