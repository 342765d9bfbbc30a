"""GPUs of the hardware table: dense peaks, memory and links."""

from __future__ import annotations

from prefixaudit.cli.kinds import Kind
from prefixaudit.cli.tables import Table, labelled


def _names() -> tuple[str, ...]:
    from prefixaudit.cost.hardware import load_hardware

    return tuple(sorted(load_hardware().gpus))


def _table() -> Table:
    from prefixaudit.cost.hardware import load_hardware

    return Table(
        heads=("gpu", "bf16 TFLOPS", "fp8 TFLOPS", "memory GB", "GB/s", "ridge tokens", "what"),
        rows=tuple(
            (
                gpu.name,
                f"{gpu.bf16_flops_per_s / 1e12:,.0f}",
                "-" if gpu.fp8_flops_per_s is None else f"{gpu.fp8_flops_per_s / 1e12:,.0f}",
                f"{gpu.memory_gb:,.0f}",
                f"{gpu.bandwidth_bytes_per_s / 1e9:,.0f}",
                f"{gpu.ridge_tokens:,.0f}",
                gpu.title + ("" if gpu.is_checked else " (unchecked)"),
            )
            for gpu in load_hardware().gpus.values()
        ),
        right=frozenset({1, 2, 3, 4, 5}),
    )


def _explain(name: str) -> list[str]:
    from prefixaudit.cost.hardware import find_gpu

    gpu = find_gpu(name)
    lo, hi = (size / 2**30 for size in gpu.memory_bytes)
    peer = gpu.peer_link_bytes_per_s
    fp8 = gpu.fp8_flops_per_s
    rows = [
        ("bf16 peak", f"{gpu.bf16_flops_per_s / 1e12:,.1f} TFLOPS, dense"),
        ("fp8 peak", "no fp8 units" if fp8 is None else f"{fp8 / 1e12:,.1f} TFLOPS, dense"),
        ("memory", f"{gpu.memory_gb:,.0f} GB sold, {lo:,.1f} to {hi:,.1f} GiB for the driver"),
        ("memory bandwidth", f"{gpu.bandwidth_bytes_per_s / 1e9:,.0f} GB/s"),
        ("link to the host", f"{gpu.host_link_bytes_per_s / 1e9:,.0f} GB/s a direction"),
        (
            "link to other GPUs",
            "none known" if peer is None else f"{peer / 1e9:,.0f} GB/s a direction",
        ),
        ("ridge", f"{gpu.ridge_tokens:,.0f} tokens: dense bf16 compute equals reading weights"),
        ("source", gpu.source),
        ("checked", "yes" if gpu.is_checked else "no: not read again in the source itself"),
    ]
    return [gpu.title, "", *labelled(rows)]


KIND = Kind(
    title="GPUs whose peaks, memory and links are known",
    singular="gpu",
    names=_names,
    table=_table,
    explain=_explain,
)
