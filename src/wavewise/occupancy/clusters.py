"""Thread block clusters: which sizes a GPU takes, and what they leave open."""

from wavewise.hardware import GpuSpec

MOST_CTAS = 16
"""CTAs of the largest cluster, after opting in; 8 without (CUDA Hopper tuning guide, "Thread Block Clusters")."""


def cluster_note(cluster_size: int | None) -> str | None:
    """The caution that goes with slots and waves of clusters."""
    if cluster_size is None or cluster_size == 1:
        return None
    return (
        f"clusters of {cluster_size} CTAs must sit inside one GPC, whose size differs from chip to "
        "chip: slots and waves are bounds (at most so many slots, at least so many waves)"
    )


def impossible_cluster(cluster_size: int | None, ctas: int | None, gpu: GpuSpec | None) -> str | None:
    """Why no launch has such clusters, in words; None for a possible one, and where nothing is known.

    Args:
        cluster_size: CTAs per cluster.
        ctas: of the grid.
        gpu: the GPU, whose features say whether it has clusters at all.
    """
    if cluster_size is None or cluster_size == 1:
        return None
    if cluster_size < 1:
        return f"a cluster of {cluster_size} CTAs is no launch"
    if gpu is not None and gpu.features and "clusters" not in gpu.features:
        return f"clusters of {cluster_size} CTAs: {gpu.name} has no thread block clusters"
    if cluster_size > MOST_CTAS:
        return f"clusters of {cluster_size} CTAs: a cluster has at most {MOST_CTAS}"
    if ctas is not None and ctas % cluster_size:
        return f"a grid of {ctas:,} CTAs cannot be cut into clusters of {cluster_size}"
    return None
