"""Speed of known deployments as data: the prior of the cost model and the physics of the simulator.

`h200` was measured on one GPU with both engines (7.35 B parameters, bf16, 147 456 KV bytes per token); the other
profiles scale it by the ratios beside them. Every figure is only where learning starts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Link:
    """Restoring KV over one link: `fixed_s` (ramped up over the first `ramp_tokens`) and bytes over bandwidth.

    `overlaps` says that the fixed part, the moving of bytes and the front end's work on the prompt run at the same
    time, so the longest of the three counts instead of their sum.
    """

    fixed_s: float
    bytes_per_s: float
    ramp_tokens: int = 0
    overlaps: bool = False

    def seconds(self, tokens: float, kv_bytes_per_token: float, beside_s: float = 0.0) -> float:
        """Time that restoring `tokens` (> 0) alone on the link adds to `beside_s` of front-end work on the prompt."""
        fixed = self.fixed_s * min(1.0, tokens / self.ramp_tokens) if self.ramp_tokens else self.fixed_s
        moving = tokens * kv_bytes_per_token / self.bytes_per_s
        return max(fixed, moving, beside_s) - beside_s if self.overlaps else fixed + moving


@dataclass(frozen=True, slots=True)
class Profile:
    """One deployment (engine on hardware). Seconds and tokens; per replica, not per GPU, unless the name says so.

    Prefill of `n` prompt tokens with `p` cached: `prefill_fixed_s` + a rate that is `small` up to `knee_tokens`
    uncached tokens and `prefill_s_per_token` above + `prefill_s_per_token2` x (n^2 - p^2).
    One decode step: `decode_base_s` + streams x `decode_s_per_stream` + cached tokens of all x `decode_s_per_token`.
    """

    name: str
    engine: str
    fixed_s: float  # front end and first step, even on a full GPU hit
    frontend_s_per_token: float  # per prompt token, cached or not, up to frontend_cap_tokens
    frontend_cap_tokens: int
    prefill_fixed_s: float
    prefill_s_per_small_token: float
    knee_tokens: int
    prefill_s_per_token: float
    prefill_s_per_token2: float
    decode_base_s: float
    decode_s_per_stream: float
    decode_s_per_token: float
    kv_bytes_per_token: float
    host: Link
    fs: Link
    remote: Link
    chunk_tokens: int  # prefill tokens per engine step
    mixes_chunks: bool  # running streams get a token after every chunk, not only after the whole prefill
    restore_stall_s: float  # what a restore from host memory costs running streams, once
    write_through: float  # factor on the per-token prefill time while KV is written to lower tiers
    write_through_fixed_s: float  # and what writing through adds to every cold prefill
    gpu_kv_tokens: int
    host_kv_tokens: int
    tokens_per_step: float = 1.0  # > 1 with accepted draft tokens (MTP)
    gpus: int = 1
    price_per_gpu_hour: float = 3.0

    def tokenise_s(self, prompt: float) -> float:
        """The front end's work on the prompt's own tokens, in seconds."""
        return self.frontend_s_per_token * min(prompt, self.frontend_cap_tokens)

    def frontend_s(self, prompt: float) -> float:
        """Time to the first token when nothing is to restore or to compute, in seconds."""
        return self.fixed_s + self.tokenise_s(prompt)

    def prefill_s(self, prompt: float, cached: float) -> float:
        """Compute time of the uncached rest of a prompt, in seconds; 0 when all is cached."""
        fresh = prompt - cached
        if fresh <= 0:
            return 0.0
        small = min(fresh, self.knee_tokens)
        linear = small * self.prefill_s_per_small_token + (fresh - small) * self.prefill_s_per_token
        return self.prefill_fixed_s + linear + self.prefill_s_per_token2 * (prompt * prompt - cached * cached)

    def step_s(self, streams: float, cached_tokens: float) -> float:
        """One decode step of a batch, in seconds; every stream gains `tokens_per_step` tokens."""
        return self.decode_base_s + streams * self.decode_s_per_stream + cached_tokens * self.decode_s_per_token


_H200_VLLM = Profile(
    name="h200",
    engine="vllm",
    fixed_s=0.0175,
    frontend_s_per_token=1.8e-6,
    frontend_cap_tokens=1_000_000,
    prefill_fixed_s=0.0109,
    prefill_s_per_small_token=11.2e-6,
    knee_tokens=2048,
    prefill_s_per_token=22.93e-6,
    prefill_s_per_token2=4.77e-10,
    decode_base_s=5.25e-3,
    decode_s_per_stream=15.5e-6,
    decode_s_per_token=33e-9,
    kv_bytes_per_token=147_456,
    host=Link(0.005, 48e9, ramp_tokens=2048),
    fs=Link(0.025, 1.85e9, ramp_tokens=2048),
    remote=Link(0.010, 10e9),
    chunk_tokens=8192,
    mixes_chunks=True,
    restore_stall_s=0.085,
    write_through=1.02,
    write_through_fixed_s=0.009,
    gpu_kv_tokens=740_000,
    host_kv_tokens=650_000,
)

_H200_SGLANG = replace(
    _H200_VLLM,
    engine="sglang",
    fixed_s=0.032,
    frontend_s_per_token=0.9e-6,
    frontend_cap_tokens=32_768,
    prefill_fixed_s=0.0014,
    prefill_s_per_small_token=9.3e-6,
    prefill_s_per_token=21.88e-6,
    prefill_s_per_token2=5.024e-10,
    decode_base_s=4.88e-3,
    decode_s_per_stream=16.5e-6,
    decode_s_per_token=34e-9,
    host=Link(0.021, 50e9, overlaps=True),
    fs=Link(0.038, 0.66e9),
    mixes_chunks=False,
    restore_stall_s=0.10,
    write_through=1.0,
    write_through_fixed_s=0.0,
)


def _scaled(
    base: Profile,
    name: str,
    *,
    prefill: float,
    decode: float,
    host: float,
    fs: float,
    mtp: float,
    price: float,
    gpus: int,
) -> Profile:
    """`base` with prefill and decode `prefill`/`decode` times as fast and links `host`/`fs` times as wide."""
    return replace(
        base,
        name=name,
        prefill_fixed_s=base.prefill_fixed_s / prefill,
        prefill_s_per_small_token=base.prefill_s_per_small_token / prefill,
        prefill_s_per_token=base.prefill_s_per_token / prefill,
        prefill_s_per_token2=base.prefill_s_per_token2 / prefill,
        decode_base_s=base.decode_base_s / decode,
        decode_s_per_stream=base.decode_s_per_stream / decode,
        decode_s_per_token=base.decode_s_per_token / decode,
        host=replace(base.host, bytes_per_s=base.host.bytes_per_s * host),
        fs=replace(base.fs, bytes_per_s=base.fs.bytes_per_s * fs),
        tokens_per_step=mtp,
        price_per_gpu_hour=price,
        gpus=gpus,
    )


def _family(base: Profile) -> tuple[Profile, ...]:
    """All deployments of one engine.

    Prefill: tokens/s of pools that serve an 18 B-active model against 4 x H200 at 20 K (8 x H100 FP8 27.5 K,
    4 x B300 and 4 x GB200 NVFP4 45 K, 2 x GB10 0.81 K). Decode: memory bandwidth of the pool against 4 x 4.8 TB/s.
    Host link: PCIe 5 x16, or NVLink-C2C. Filesystem: one local NVMe drive of its generation against the measured disk.
    """
    return (
        base,
        _scaled(base, "h100-fp8", prefill=1.375, decode=1.4, host=1.0, fs=2.0, mtp=1.0, price=2.5, gpus=8),
        _scaled(base, "b300-nvfp4", prefill=2.25, decode=1.67, host=1.0, fs=3.0, mtp=1.0, price=5.0, gpus=4),
        _scaled(base, "gb200-nvfp4", prefill=2.25, decode=1.67, host=3.3, fs=3.0, mtp=1.0, price=5.5, gpus=4),
        _scaled(base, "gb200-mtp", prefill=2.25, decode=1.67, host=3.3, fs=3.0, mtp=2.4, price=5.5, gpus=4),
        _scaled(base, "gb10", prefill=0.04, decode=0.03, host=0.5, fs=1.5, mtp=1.0, price=0.3, gpus=2),
    )


_ALL = {(p.engine, p.name): p for base in (_H200_VLLM, _H200_SGLANG) for p in _family(base)}
DEFAULT_PROFILE = "h200"


def profile_names() -> tuple[str, ...]:
    """All hardware profile names, the measured one first."""
    return tuple(dict.fromkeys(name for _, name in _ALL))


def profile(name: str, engine: str = "vllm") -> Profile:
    """The profile of an engine on hardware; `nim` is SGLang inside. Raises KeyError for an unknown name."""
    return _ALL["sglang" if engine == "nim" else engine, name]
